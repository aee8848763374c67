"""An editor to try edits on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headgate.control.editor import PolicyEditor, Wish
from headgate.control.storage import MemoryStorage
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

RULE: dict[str, Any] = {"key_by": "ip", "limit": "5/minute"}
ADA = Wish(author="ada", note="ticket 7")


def wish(*versions: int) -> Wish:
    return Wish(author="ada", versions=frozenset(versions))


class Trial:
    """An editor of rules `login` (version 1) and `api` (version 2)."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.storage = MemoryStorage()
        self.editor = PolicyEditor(self.storage, clock=self.clock)

    async def begin(self) -> Trial:
        await self.editor.put_rule("login", RULE, ADA)
        await self.editor.put_rule("api", {**RULE, "mode": "shadow"}, ADA)
        return self

    async def ids(self) -> list[str]:
        return [rule["id"] for rule in (await self.editor.head()).document["rules"]]

    async def is_unchanged(self) -> bool:
        return (await self.editor.head()).number == 2


def tried(body: Callable[[Trial], Any]) -> None:
    async def main() -> None:
        await body(await Trial().begin())

    asyncio.run(main())
