"""The two drivers of generators of effects: one blocks, one awaits."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.runtime.effects import Effect, Interrupted

if TYPE_CHECKING:
    from headgate.runtime.effects import Effects

R = TypeVar("R")


def drive(effects: Effects[R]) -> R:
    """Perform *effects* in this thread and return the generator's result."""
    reply: Any = None
    error: BaseException | None = None
    interrupt: BaseException | None = None
    while True:
        try:
            effect = effects.send(reply) if error is None else effects.throw(error)
        except StopIteration as end:
            if interrupt is not None:
                raise interrupt from None
            return end.value  # type: ignore[no-any-return] # an R
        except Interrupted as caught:
            raise interrupt or caught from None
        reply = error = None
        try:
            reply = effect.perform()
        except Interrupted as caught:
            interrupt, error = caught.__cause__, caught
        except BaseException as caught:  # noqa: BLE001 (the generator's to handle, whatever it is)
            error = caught


async def adrive(effects: Effects[R]) -> R:
    """Perform *effects* in the running event loop and return the generator's result."""
    reply: Any = None
    error: BaseException | None = None
    interrupt: BaseException | None = None
    while True:
        try:
            effect = effects.send(reply) if error is None else effects.throw(error)
        except StopIteration as end:
            if interrupt is not None:
                raise interrupt from None
            return end.value  # type: ignore[no-any-return] # an R
        except Interrupted as caught:
            raise interrupt or caught from None
        reply = error = None
        try:
            reply = await effect.aperform()
        except Interrupted as caught:
            interrupt, error = caught.__cause__, caught
        except asyncio.CancelledError as caught:
            interrupt, error = caught, Interrupted()
        except BaseException as caught:  # noqa: BLE001 (the generator's to handle, whatever it is)
            error = caught


_tasks: set[asyncio.Task[None]] = set()
"""Keeps tasks in the background from being collected."""


def spawn(effects: Effects[None], *, name: str, in_loop: bool) -> None:
    """Perform *effects* beside the caller: in a task of the running event loop, or in a thread.

    Raises `RuntimeError` if no thread can be started; the generator has not begun then.
    """
    if not in_loop:
        threading.Thread(target=drive, args=(effects,), name=name, daemon=True).start()
        return
    task = asyncio.get_running_loop().create_task(_quietly(effects), name=name)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


async def _quietly(effects: Effects[None]) -> None:
    """Perform *effects*. A loop that ends cancels its tasks: that is no error here."""
    try:
        with suppress(Interrupted):
            await adrive(effects)
    finally:
        effects.close()


class Background(Effect):
    """Perform *effects* beside the caller, which does not wait for them."""

    __slots__ = ("effects", "name")

    def __init__(self, effects: Effects[None], name: str) -> None:
        self.effects = effects
        self.name = name

    def perform(self) -> None:
        spawn(self.effects, name=self.name, in_loop=False)

    async def aperform(self) -> None:
        spawn(self.effects, name=self.name, in_loop=True)
