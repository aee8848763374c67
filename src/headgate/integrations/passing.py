"""A request passes a gate: asked on its way in, settled at its end. For apps that block and not.

`enter` is called for each part of the app that has something to ask; the first that refuses ends
the matter. `finish` is called once when the response is over, however it ended.
"""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.engine.recorder import record_again, record_places
from headgate.errors import StoreError, UsageError
from headgate.integrations.passage import Grant, Responded, owed
from headgate.integrations.turns import Held, refusal_by
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.heartbeat import ASYNC_HEART, BEATS, HEART
from headgate.runtime.holds import new_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from typing import Any

    from headgate.engine.plan import Queueing
    from headgate.engine.verdict import Verdict
    from headgate.integrations.allowance import Asking
    from headgate.integrations.gate import Gate
    from headgate.integrations.passage import Entry, Passage
    from headgate.integrations.turns import Came
    from headgate.overload import Turn
    from headgate.runtime.effects import Effects
    from headgate.runtime.heartbeat import AsyncBeat, Beat


# Going through an `Asking`, in an app that may block and in one that may not.


T = TypeVar("T")

PLAIN: Final = frozenset({str, int, bool, tuple, list, type(None)})
"""What functions return mostly, and what nobody has to wait for."""


def answered(asking: Asking[T]) -> T:
    """What *asking* comes to. `UsageError` if one of its functions has to be awaited."""
    try:
        value = next(asking)
        while True:
            if type(value) not in PLAIN and inspect.isawaitable(value):
                _refuse(value)
            value = asking.send(value)
    except StopIteration as done:
        result: T = done.value
        return result


async def answered_async(asking: Asking[T]) -> T:
    """What *asking* comes to; what has to be awaited is."""
    try:
        value = next(asking)
        while True:
            if type(value) not in PLAIN and inspect.isawaitable(value):
                value = await value
            value = asking.send(value)
    except StopIteration as done:
        result: T = done.value
        return result


def _refuse(value: object) -> None:
    close = getattr(value, "close", None)
    if close is not None:
        close()  # or Python warns that it was never awaited
    raise UsageError(
        "a function for a limit is async, and this app is not async: make it a plain one"
    )


if TYPE_CHECKING:
    Meanwhile = Callable[[Coroutine[Any, Any, Came]], Awaitable[Came]]
    """What waits for turns."""

_ABANDONED: Final = Responded(499)
"""What nginx has in its log when a client goes away."""
_REFUSED: Final = Responded(429)
"""How a request ends, as far as those know who granted it something before it was refused."""


def enter(passage: Passage, gate: Gate, asking: Asking[Entry | None]) -> bool:
    """Whether the request may go on.

    A refusal gives back what was granted before: at the end, if that is what is answered, or at
    once if nobody sees the end.
    """
    entry = answered(asking)
    if entry is None:
        return True
    is_counted = bool(passage.grants)
    verdict = entry.refusal
    if verdict is None:
        verdict = gate.engine.decide_now(entry.plan)
    if verdict is None:
        verdict = drive(_decide(gate, entry))
    if verdict.allowed:
        came = _turns(passage, gate, entry, verdict)
        if isinstance(came, Grant):
            _grant(passage, came, is_counted=is_counted)
            return True
        verdict = came
    else:
        drive(gate.engine.release(verdict))
    if is_counted:
        record_again()
    for grant in passage.refused(verdict):
        grant.end(_REFUSED, is_refusal=True)
        drive(grant.gate.engine.undo(grant.verdict))
    return False


def _decide(gate: Gate, entry: Entry) -> Effects[Verdict]:
    if entry.plan.open:
        return gate.engine.reserve(entry.plan, entry.plan.lease or new_name(), entry.ttl_ns)
    return gate.engine.decide(entry.plan)


def _turns(passage: Passage, gate: Gate, entry: Entry, verdict: Verdict) -> Grant | Verdict:
    """Wait until it is the turn of a request that was admitted; what it was granted then, or that
    it was refused: then all that it was charged has been given back."""
    delay_ns, queues = verdict.delay_ns, entry.plan.queues
    beat = _beat(passage, gate, verdict)
    if not delay_ns and not queues:
        return _granted(gate, entry, verdict, beat)
    with ExitStack() as undoing:
        undoing.callback(_undo, gate, verdict)
        if beat is not None:
            undoing.callback(beat.stop)
        if delay_ns:
            gate.turns.sleep(delay_ns)
        turns, refused = gate.turns.enter(queues)
        if refused is not None:
            return refusal_by(refused, turns[0], verdict.revision)
        undoing.pop_all()
    return _granted(gate, entry, verdict, beat, tuple(turns))


def finish(passage: Passage, responded: Responded) -> None:
    """Settle what is held, and set free what is occupied. A second call does nothing."""
    if not passage.has_an_end:
        return
    with ExitStack() as ends:  # all of them, should a function of the app's raise
        is_refusal = passage.is_refusal(responded.status)
        for grant in passage.take():
            grant.end(responded, is_refusal=is_refusal)
            ends.callback(drive, _end(grant, passage, responded, is_refusal=is_refusal))


async def enter_async(
    passage: Passage, gate: Gate, asking: Asking[Entry | None], meanwhile: Meanwhile | None = None
) -> bool:
    """As `enter`, for an event loop. *meanwhile* is what waits for turns: for somebody who has
    something else to look after at that time."""
    entry = await answered_async(asking)
    if entry is None:
        return True
    verdict = entry.refusal
    if verdict is None:
        verdict = gate.engine.decide_now(entry.plan)
    return await pass_async(passage, gate, entry, verdict, meanwhile)


def grant_now(passage: Passage, gate: Gate, entry: Entry, verdict: Verdict) -> bool:
    """Let the first gate grant a request at once; False if that takes `pass_async`."""
    if not verdict.allowed or entry.plan.queues or passage.grants:
        return False
    if verdict.slots is not None or verdict.local_slots is not None or verdict.delay_ns:
        return False
    pressing = gate.pressing
    began_ns = None if pressing is None else pressing.begin_async()
    passage.granted(Grant(gate, entry, verdict, (), began_ns))
    return True


async def pass_async(
    passage: Passage,
    gate: Gate,
    entry: Entry,
    verdict: Verdict | None,
    meanwhile: Meanwhile | None = None,
) -> bool:
    """The rest of `enter_async`: *verdict* is what could be decided at once."""
    if verdict is None:
        verdict = await adrive(_decide(gate, entry))
    if grant_now(passage, gate, entry, verdict):
        return True
    is_counted = bool(passage.grants)
    if verdict.allowed:
        came = await _turns_async(passage, gate, entry, verdict, meanwhile)
        if isinstance(came, Grant):
            _grant(passage, came, is_counted=is_counted)
            return True
        verdict = came
    if is_counted:
        record_again()
    async with AsyncExitStack() as ends:  # all of them, should the request be cancelled meanwhile
        for grant in reversed(passage.refused(verdict)):
            grant.end(_REFUSED, is_refusal=True)
            ends.push_async_callback(_undo_async, grant.gate, grant.verdict)
        await adrive(gate.engine.release(verdict))
    return False


async def _turns_async(
    passage: Passage, gate: Gate, entry: Entry, verdict: Verdict, meanwhile: Meanwhile | None
) -> Grant | Verdict:
    """As `_turns`; who is cancelled meanwhile gives everything back."""
    delay_ns, queues = verdict.delay_ns, entry.plan.queues
    beat = _beat_async(passage, gate, verdict)
    if not delay_ns:
        if not queues:
            return _granted_async(gate, entry, verdict, beat)
        try:
            at_once = gate.turns.try_enter_async(queues)
        except BaseException:
            if beat is not None:
                beat.stop()
            await _undo_async(gate, verdict)
            raise
        if at_once is not None:
            return _granted_async(gate, entry, verdict, beat, at_once)
    async with AsyncExitStack() as undoing:
        undoing.push_async_callback(_undo_async, gate, verdict)
        if beat is not None:
            undoing.callback(beat.stop)
        waiting = _wait(gate, delay_ns, queues)
        turns, refused = await (waiting if meanwhile is None else meanwhile(waiting))
        if refused is not None:
            return refusal_by(refused, turns[0], verdict.revision)
        undoing.pop_all()
    return _granted_async(gate, entry, verdict, beat, tuple(turns))


async def _wait(gate: Gate, delay_ns: int, queues: tuple[Queueing, ...]) -> Came:
    if delay_ns:
        await gate.turns.sleep_async(delay_ns)
    return await gate.turns.enter_async(queues)


def _undo(gate: Gate, verdict: Verdict) -> None:
    drive(gate.engine.undo(verdict))


async def _undo_async(gate: Gate, verdict: Verdict) -> None:
    await adrive(gate.engine.undo(verdict))


async def finish_async(passage: Passage, responded: Responded) -> None:
    """As `finish`; it is done to the end even if the request is cancelled meanwhile."""
    if not passage.has_an_end:
        return
    is_refusal = passage.is_refusal(responded.status)
    async with AsyncExitStack() as ends:
        for grant in passage.take():
            grant.end(responded, is_refusal=is_refusal)
            if is_refusal or grant.has_an_end:
                ending = _end(grant, passage, responded, is_refusal=is_refusal)
                ends.push_async_callback(adrive, ending)


async def abandon_async(passage: Passage) -> None:
    """Give back all that was granted: nobody waits for the response any more, and the app has not
    begun with it."""
    async with AsyncExitStack() as ends:
        for grant in passage.take():
            grant.end(_ABANDONED, is_refusal=True)
            ends.push_async_callback(_undo_async, grant.gate, grant.verdict)


async def settle_outcome(passage: Passage, responded: Responded) -> None:
    """Settle what depends on nothing but the outcome, which is known before the end."""
    for grant in passage.grants:
        if grant.entry.is_known_at_once and grant.is_open:
            amounts = grant.amounts(responded, passage.used)
            await adrive(_settle(grant.gate, grant.verdict, amounts))


def _end(
    grant: Grant, passage: Passage, responded: Responded, *, is_refusal: bool
) -> Effects[None]:
    """Undo what a request was granted, or settle it and charge what it has cost besides."""
    engine, verdict = grant.gate.engine, grant.verdict
    if is_refusal:
        yield from engine.undo(verdict)
        return
    amounts: Mapping[str, int] = {}
    try:
        if grant.is_open:
            amounts = grant.amounts(responded, passage.used)
    finally:  # should a function of the app raise, what was held is charged
        try:
            if grant.is_open:
                yield from _settle(grant.gate, verdict, amounts)
        finally:
            yield from engine.release(verdict)
    if grant.entry.after:
        left = yield from engine.charge(owed(grant, passage, responded))
        grant.gate.afterwards.note_lost(left)


def _settle(gate: Gate, verdict: Verdict, amounts: Mapping[str, int]) -> Effects[None]:
    with suppress(StoreError):  # the hold expires
        yield from gate.engine.settle(verdict, amounts)


def _beat(passage: Passage, gate: Gate, verdict: Verdict) -> Beat | None:
    """What keeps the slots of a request that was admitted, while it waits and as long as it lasts;
    None if it has none.

    It ends with *passage*, too: without that nobody can finish, and there are servers and test
    clients that forget a response without closing it.
    """
    lasts_ns = verdict.slots_last_ns
    if lasts_ns is None:
        return None

    def renew() -> bool:
        return drive(gate.engine.renew(verdict))

    return HEART.beat(renew, max(1, lasts_ns // BEATS), passage)


def _beat_async(passage: Passage, gate: Gate, verdict: Verdict) -> AsyncBeat | None:
    """As `_beat`."""
    lasts_ns = verdict.slots_last_ns
    if lasts_ns is None:
        return None

    async def renew() -> bool:
        return await adrive(gate.engine.renew(verdict))

    return ASYNC_HEART.beat(renew, max(1, lasts_ns // BEATS), passage)


def _grant(passage: Passage, grant: Grant, *, is_counted: bool) -> None:
    """Have a request go on with *grant*; it *is_counted* if something was granted to it before."""
    passage.granted(grant)
    if is_counted:
        record_again()


def _granted(
    gate: Gate, entry: Entry, verdict: Verdict, beat: Beat | None, turns: tuple[Turn, ...] = ()
) -> Grant:
    """What a request that goes on now was granted."""
    if turns:
        record_places(verdict)
        turns = Held(turns)
    began_ns = None if gate.pressing is None else gate.pressing.begin()
    return Grant(gate, entry, verdict, turns, began_ns, beat)


def _granted_async(
    gate: Gate, entry: Entry, verdict: Verdict, beat: AsyncBeat | None, turns: tuple[Turn, ...] = ()
) -> Grant:
    """As `_granted`."""
    if turns:
        record_places(verdict)
        turns = Held(turns)
    began_ns = None if gate.pressing is None else gate.pressing.begin_async()
    return Grant(gate, entry, verdict, turns, began_ns, beat)
