"""A request passes a gate: asked on its way in, settled at its end. For apps that block and not.

`enter` is called for each part of the app that has something to ask; the first that refuses ends
the matter. `finish` is called once when the response is over, however it ended.
"""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.engine.records import note_further, note_turns
from headgate.errors import UsageError
from headgate.integrations.passage import Grant, Responded, owed
from headgate.integrations.turns import Held, refusal_by
from headgate.runtime.heartbeat import ASYNC_HEART, BEATS, HEART

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from typing import Any

    from headgate.engine import Verdict
    from headgate.engine.holds import Owed
    from headgate.engine.plan import Queueing
    from headgate.integrations.allowance import Asking
    from headgate.integrations.gate import Gate
    from headgate.integrations.passage import Entry, Passage
    from headgate.integrations.turns import Came
    from headgate.overload import Turn
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
    runner = gate.runner
    if entry.refusal is not None:
        verdict = entry.refusal
    elif entry.plan.open:
        verdict = runner.reserve(entry.plan, entry.ttl_ns)
    else:
        verdict = runner.decide(entry.plan)
    if verdict.allowed:
        came = _turns(passage, gate, entry, verdict)
        if isinstance(came, Grant):
            _grant(passage, came, is_counted=is_counted)
            return True
        verdict = came
    else:
        runner.release(verdict)
    if is_counted:
        note_further()
    for grant in passage.refused(verdict):
        grant.end(_REFUSED, is_refusal=True)
        _give_back(grant)
    return False


def _turns(passage: Passage, gate: Gate, entry: Entry, verdict: Verdict) -> Grant | Verdict:
    """Wait until it is the turn of a request that was admitted; what it was granted then, or that
    it was refused: then all that it was charged has been given back."""
    delay_ns, queues = verdict.delay_ns, entry.plan.queues
    beat = _beat(passage, gate, verdict)
    if not delay_ns and not queues:
        return _granted(gate, entry, verdict, beat)
    with ExitStack() as undoing:
        undoing.callback(_give_back, Grant(gate, entry, verdict))
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
            if is_refusal:
                ends.callback(_give_back, grant)
                continue
            ends.callback(_settle, grant, responded, passage.used)
            if grant.entry.after:
                ends.callback(_charge_after, grant, owed(grant, passage, responded))


async def enter_async(
    passage: Passage, gate: Gate, asking: Asking[Entry | None], meanwhile: Meanwhile | None = None
) -> bool:
    """As `enter`, for an event loop. *meanwhile* is what waits for turns: for somebody who has
    something else to look after at that time."""
    entry = await answered_async(asking)
    if entry is None:
        return True
    is_counted = bool(passage.grants)
    runner = gate.async_runner
    if entry.refusal is not None:
        verdict = entry.refusal
    elif entry.plan.open:
        verdict = await runner.reserve(entry.plan, entry.ttl_ns)
    else:
        verdict = await runner.decide(entry.plan)
    if verdict.allowed:
        came = await _turns_async(passage, gate, entry, verdict, meanwhile)
        if isinstance(came, Grant):
            _grant(passage, came, is_counted=is_counted)
            return True
        verdict = came
    if is_counted:
        note_further()
    async with AsyncExitStack() as ends:  # all of them, should the request be cancelled meanwhile
        for grant in reversed(passage.refused(verdict)):
            grant.end(_REFUSED, is_refusal=True)
            ends.push_async_callback(grant.gate.async_runner.to_the_end, _give_back_async(grant))
        await runner.release(verdict)
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
            await _undo(Grant(gate, entry, verdict))
            raise
        if at_once is not None:
            return _granted_async(gate, entry, verdict, beat, at_once)
    async with AsyncExitStack() as undoing:
        undoing.push_async_callback(_undo, Grant(gate, entry, verdict))
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


async def _undo(grant: Grant) -> None:
    await grant.gate.async_runner.to_the_end(_give_back_async(grant))


async def finish_async(passage: Passage, responded: Responded) -> None:
    """As `finish`; it is done to the end even if the request is cancelled meanwhile."""
    if not passage.has_an_end:
        return
    is_refusal = passage.is_refusal(responded.status)
    async with AsyncExitStack() as ends:
        for grant in passage.take():
            grant.end(responded, is_refusal=is_refusal)
            to_the_end = grant.gate.async_runner.to_the_end
            ending: Coroutine[None, None, None]
            if is_refusal:
                ending = _give_back_async(grant)
            elif grant.has_an_end:
                ending = _settle_async(grant, responded, passage.used)
            else:
                continue
            ends.push_async_callback(to_the_end, ending)
            if grant.entry.after and not is_refusal:
                more = owed(grant, passage, responded)
                ends.push_async_callback(to_the_end, _charge_after_async(grant, more))


async def abandon_async(passage: Passage) -> None:
    """Give back all that was granted: nobody waits for the response any more, and the app has not
    begun with it."""
    async with AsyncExitStack() as ends:
        for grant in passage.take():
            grant.end(_ABANDONED, is_refusal=True)
            ends.push_async_callback(_undo, grant)


async def settle_outcome(passage: Passage, responded: Responded) -> None:
    """Settle what depends on nothing but the outcome, which is known before the end."""
    for grant in passage.grants:
        if grant.entry.is_known_at_once and grant.is_open:
            amounts = grant.amounts(responded, passage.used)
            await grant.gate.async_runner.settle(grant.verdict, amounts)


def _settle(grant: Grant, responded: Responded, used: Mapping[str, int]) -> None:
    runner, verdict = grant.gate.runner, grant.verdict
    amounts: Mapping[str, int] = {}
    try:
        if grant.is_open:
            amounts = grant.amounts(responded, used)
    finally:
        if grant.is_open:
            runner.settle(verdict, amounts)
        runner.release(verdict)


async def _settle_async(grant: Grant, responded: Responded, used: Mapping[str, int]) -> None:
    runner, verdict = grant.gate.async_runner, grant.verdict
    amounts: Mapping[str, int] = {}
    try:
        if grant.is_open:
            amounts = grant.amounts(responded, used)
    finally:
        if grant.is_open:
            await runner.settle(verdict, amounts)
        await runner.release(verdict)


def _charge_after(grant: Grant, more: Owed) -> None:
    grant.gate.afterwards.note_lost(grant.gate.runner.charge(more))


async def _charge_after_async(grant: Grant, more: Owed) -> None:
    grant.gate.afterwards.note_lost(await grant.gate.async_runner.charge(more))


def _give_back(grant: Grant) -> None:
    grant.gate.runner.give_back(grant.verdict)
    grant.gate.runner.release(grant.verdict)


async def _give_back_async(grant: Grant) -> None:
    await grant.gate.async_runner.give_back(grant.verdict)
    await grant.gate.async_runner.release(grant.verdict)


def _beat(passage: Passage, gate: Gate, verdict: Verdict) -> Beat | None:
    """What keeps the slots of a request that was admitted, while it waits and as long as it lasts;
    None if it has none.

    It ends with *passage*, too: without that nobody can finish, and there are servers and test
    clients that forget a response without closing it.
    """
    lasts_ns = verdict.slots_last_ns
    if lasts_ns is None:
        return None
    return HEART.beat(partial(gate.runner.renew, verdict), max(1, lasts_ns // BEATS), passage)


def _beat_async(passage: Passage, gate: Gate, verdict: Verdict) -> AsyncBeat | None:
    """As `_beat`."""
    lasts_ns = verdict.slots_last_ns
    if lasts_ns is None:
        return None
    renew = partial(gate.async_runner.renew, verdict)
    return ASYNC_HEART.beat(renew, max(1, lasts_ns // BEATS), passage)


def _grant(passage: Passage, grant: Grant, *, is_counted: bool) -> None:
    """Have a request go on with *grant*; it *is_counted* if something was granted to it before."""
    passage.granted(grant)
    if is_counted:
        note_further()


def _granted(
    gate: Gate, entry: Entry, verdict: Verdict, beat: Beat | None, turns: tuple[Turn, ...] = ()
) -> Grant:
    """What a request that goes on now was granted."""
    if turns:
        note_turns(verdict)
        turns = Held(turns)
    began_ns = None if gate.pressing is None else gate.pressing.begin()
    return Grant(gate, entry, verdict, turns, began_ns, beat)


def _granted_async(
    gate: Gate, entry: Entry, verdict: Verdict, beat: AsyncBeat | None, turns: tuple[Turn, ...] = ()
) -> Grant:
    """As `_granted`."""
    if turns:
        note_turns(verdict)
        turns = Held(turns)
    began_ns = None if gate.pressing is None else gate.pressing.begin_async()
    return Grant(gate, entry, verdict, turns, began_ns, beat)
