"""A store that waits and records, and an interrupt at one `yield` of a generator of effects."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

from headgate.errors import StoreError
from headgate.runtime.effects import Effect, Reply, StoreEffect
from headgate.stores.base import Store
from headgate.testing import ManualClock
from tests.support.lease_store import LeaseGrantingStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.runtime.effects import Effects, Pending
    from headgate.stores.operations import Operation


class Recorder(Store):
    """A memory store that waits, and records the operations that it has carried out."""

    grants_leases = publishes_values = True
    where = "recorder:1"

    def __init__(self, *, has_futures: bool) -> None:
        self.inner = LeaseGrantingStore(clock=ManualClock(1_000))
        self.done: list[tuple[Operation[Any], Any]] = []
        self.is_failing = False
        self.interrupt: Callable[[], object] | None = None
        """Called once, after the next operation has been carried out."""
        self._has_futures = has_futures

    def run(self, operation: Operation[Any]) -> Any:
        if self.is_failing:
            raise StoreError("no reply", reason="timeout")
        reply = self.inner.run(operation)
        self.done.append((operation, reply))
        if self.interrupt is not None:
            interrupt, self.interrupt = self.interrupt, None
            interrupt()
        return reply

    async def arun(self, operation: Operation[Any]) -> Any:
        await asyncio.sleep(0)
        reply = self.run(operation)
        await asyncio.sleep(0)
        return reply

    def submit(self, operation: Operation[Any]) -> asyncio.Future[Any]:
        if not self._has_futures:
            return super().submit(operation)
        loop = asyncio.get_running_loop()
        reply: Reply[Any] = Reply(loop=loop)

        def carry_out() -> None:
            try:
                reply.set_result(self.run(operation))
            except StoreError as error:
                reply.set_exception(error)

        loop.call_soon(carry_out)
        return reply


class Interrupting(Effect):
    """*effect*, with an interrupt before it, or after its operation has been carried out."""

    def __init__(self, effect: Effect, recorder: Recorder, when: str) -> None:
        self._effect = effect
        self._recorder = recorder
        self._is_during = when == "during" and hasattr(effect, "store")
        self.is_finished = effect.is_finished

    @property
    def may_be_held(self) -> bool:
        return self._effect.may_be_held

    @property
    def store(self) -> Any:
        return self._effect.store  # type: ignore[attr-defined] # a Run or RunAll

    def perform(self) -> Any:
        def interrupt() -> None:
            signal.raise_signal(signal.SIGINT)

        self._set(interrupt)
        return self._effect.perform()

    def begin(self) -> Pending | None:
        if isinstance(self._effect, StoreEffect) and self._effect.store.waits:
            self._cancel_task()
        return self._effect.begin()

    async def aperform(self) -> Any:
        self._cancel_task()
        reply = await self._effect.aperform()
        await asyncio.sleep(0)  # at the latest
        return reply

    def _cancel_task(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._set(task.cancel)

    def _set(self, interrupt: Callable[[], object]) -> None:
        if self._is_during:
            self._recorder.interrupt = interrupt
        else:
            interrupt()


def interrupted_at(
    effects: Effects[Any], place: int | None, recorder: Recorder, when: str, steps: list[Effect]
) -> Effects[Any]:
    """*effects*, with an interrupt at the `yield` of number *place*; *steps* are the effects."""
    reply: Any = None
    error: BaseException | None = None
    while True:
        try:
            effect = effects.send(reply) if error is None else effects.throw(error)
        except StopIteration as end:
            return end.value
        if len(steps) == place:
            effect = Interrupting(effect, recorder, when)
        steps.append(effect)
        reply = error = None
        try:
            reply = yield effect
        except BaseException as caught:  # noqa: BLE001 (thrown in above)
            error = caught
