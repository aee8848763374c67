"""An editor to try edits on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.control.editor import EditRequest, PolicyEditor
from headgate.control.edits import put_rule, rule_in
from headgate.control.source import MemorySource
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

RULE: dict[str, Any] = {"key_by": "ip", "limit": "5/minute"}
ADA = EditRequest(author="ada", note="ticket 7")


def wish(*versions: int) -> EditRequest:
    return EditRequest(author="ada", versions=frozenset(versions))


class Trial:
    """An editor of rules `login` (version 1) and `api` (version 2)."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.storage = MemorySource()
        self.editor = PolicyEditor(self.storage, clock=self.clock)

    def begin(self) -> Trial:
        self.editor.apply(put_rule("login", RULE), ADA)
        self.editor.apply(put_rule("api", {**RULE, "mode": "shadow"}), ADA)
        return self

    def rule(self, rule_id: str) -> tuple[int, dict[str, Any]]:
        """The version and the data of a rule."""
        newest = self.editor.head()
        return newest.version_of(rule_id), rule_in(newest.document, rule_id)

    def ids(self) -> list[str]:
        return [rule["id"] for rule in (self.editor.head()).document["rules"]]

    def is_unchanged(self) -> bool:
        return (self.editor.head()).number == 2


def tried(body: Callable[[Trial], Any]) -> None:
    def main() -> None:
        body(Trial().begin())

    main()
