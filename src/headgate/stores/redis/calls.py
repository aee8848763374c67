"""Operations as requests: what is sent, and what is made of the reply.

A *waiter* is whoever waits for a result: an `asyncio.Future`, or a thread's `Answer`. Several takes
make one request, each with a waiter of its own; what goes wrong with one of them is told to it
alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

import hiredis

from headgate.limits import LeakyQueue
from headgate.stores.operations import (
    MOST_ORIGINS,
    CancelQueued,
    Charge,
    Check,
    GrantLease,
    Hold,
    LeaseGrant,
    MergeUsage,
    Operation,
    Outcomes,
    PublishValue,
    Refund,
    ReleaseSlot,
    RenewSlot,
    Reset,
    Settle,
    Take,
)
from headgate.stores.redis.cluster_split import Reach, Reached
from headgate.stores.redis.codec import LARGEST_CHARGE, Counter, ToldQueue, rounded_up, spec_of
from headgate.stores.redis.errors import store_error
from headgate.stores.redis.naming import LEASED, LOANS, LOG, PARTS, VOICES
from headgate.stores.redis.request import Reply, Request, Script, script
from headgate.units import MICROSECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headgate.errors import StoreError
    from headgate.stores.redis.naming import Names


Arguments = list[bytes | int]

pack = cast("Callable[[tuple[bytes | int, ...]], bytes]", hiredis.pack_command)
"""A command in the form in which it is sent."""


class Waiter(Protocol):
    """Who waits for a result: a part of `asyncio.Future`."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...


def disappoint(waiters: Iterable[Waiter], error: StoreError) -> None:
    """Tell all *waiters* of *error*, each with a copy: exceptions are not for sharing."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error.copied())


def listed(reply: Reply) -> list[Reply]:
    """*reply*, which has to be a list, and not an empty one."""
    if type(reply) is not list or not reply:
        raise TypeError(f"a list was expected, not {reply!r}")
    return reply


class ScriptRequest(Request):
    """One call of one script for one waiter."""

    __slots__ = ("arguments", "keys", "script", "waiter")

    def __init__(self, the_script: Script, keys: list[bytes], arguments: Arguments) -> None:
        self.script = the_script
        self.keys = keys
        self.arguments = arguments

    @property
    def key(self) -> bytes:
        return self.keys[0]

    def packed(self) -> bytes:
        keys = self.keys
        return pack((b"EVALSHA", self.script.digest, len(keys), *keys, *self.arguments))

    def packed_whole(self) -> bytes:
        return pack((b"EVAL", self.script.text, len(self.keys), *self.keys, *self.arguments))


class OperationRequest(ScriptRequest):
    """An operation other than a take."""

    __slots__ = ("_operation",)

    def __init__(self, operation: Operation[Any], names: Names, now: bytes, waiter: Waiter) -> None:
        name, arguments, checks = _parts(operation)
        keys, specs = asked(checks, names)
        super().__init__(script(name), keys, [now, *arguments, len(checks), *specs])
        self._operation = operation
        self.waiter = waiter

    def answered(self, reply: Reply) -> None:
        if isinstance(self._operation, Hold | Charge | Refund):
            listed(reply)
        if self.waiter.done():
            return
        match self._operation:
            case Reach(checks=checks):
                before, after = (
                    outcomes_of_take(checks, reply[1], reply[0], consume=consume)
                    for consume in (False, True)
                )
                result: object = Reached(before, after)
            case Hold(checks=checks) if reply[1][0]:
                result = outcomes_granted(checks, reply[1:], reply[0])
            case Hold(checks=checks):
                result = outcomes_of_take(checks, reply[1], reply[0], consume=False)
            case Charge(checks=checks) | Refund(checks=checks):
                result = outcomes_of_one(checks, reply[1], reply[0])
            case _:
                result = reply == 1
        self.waiter.set_result(result)

    def failed(self, error: StoreError) -> None:
        disappoint([self.waiter], error)


class ResetRequest(Request):
    """Forget counters. No script is needed: one command deletes them all."""

    __slots__ = ("_keys", "_waiter")

    def __init__(self, operation: Reset, names: Names, waiter: Waiter) -> None:
        self._waiter = waiter
        self._keys = [
            names.counter(check.group, check.key, mark)
            for check in operation.checks
            for mark in ("", LOG, LEASED, PARTS, LOANS)
        ]

    @property
    def key(self) -> bytes:
        return self._keys[0]

    def packed(self) -> bytes:
        return pack((b"UNLINK", *self._keys))

    def packed_whole(self) -> bytes:
        return self.packed()

    def answered(self, reply: Reply) -> None:
        if not self._waiter.done():
            self._waiter.set_result(None)

    def failed(self, error: StoreError) -> None:
        disappoint([self._waiter], error)


class TakeBatch(ScriptRequest):
    """Takes of many waiters, each for itself, in the order in which they were added."""

    __slots__ = ("_names", "_now", "_takes")

    def __init__(self, names: Names, now: bytes) -> None:
        super().__init__(script("take"), [], [now])
        self._names = names
        self._now = now
        self._takes: list[tuple[Take, Waiter]] = []

    def __len__(self) -> int:
        return len(self._takes)

    def add(self, take: Take, waiter: Waiter) -> None:
        keys, specs = asked(take.checks, self._names)  # this may raise: nothing is touched yet
        lease = (take.lease or "").encode("utf-8", "surrogatepass")
        self.keys += keys
        self.arguments += (int(take.consume), lease, len(take.checks), *specs)
        self._takes.append((take, waiter))

    def answered(self, reply: Reply) -> None:
        now = listed(reply)[0]
        for (take, waiter), told in zip(self._takes, reply[1:], strict=True):
            if isinstance(told, hiredis.ReplyError):
                disappoint([waiter], store_error(str(told), "the store"))
            elif not waiter.done():
                consume = take.consume
                waiter.set_result(outcomes_of_take(take.checks, told, now, consume=consume))

    def failed(self, error: StoreError) -> None:
        disappoint([waiter for _, waiter in self._takes], error)

    def parts(self) -> Sequence[Request]:
        if len(self._takes) == 1:
            return (self,)
        parts = []
        for take, waiter in self._takes:
            part = TakeBatch(self._names, self._now)
            part.add(take, waiter)
            parts.append(part)
        return parts


def _parts(operation: Operation[Any]) -> tuple[str, Arguments, tuple[Check, ...]]:
    """The script of *operation*, its own arguments, and its checks."""
    match operation:
        case Hold(checks, name, ttl_ns):
            return "hold", [_word(name), ttl_ns // MICROSECOND], checks
        case Settle(checks, name, charge_lapsed):
            return "settle", [_word(name), int(charge_lapsed)], checks
        case Charge(checks):
            return "charge", [], checks
        case Refund(checks):
            return "refund", [], checks
        case RenewSlot(checks, lease):
            return "renew", [lease.encode("utf-8", "surrogatepass")], checks
        case ReleaseSlot(checks, lease):
            return "leave", [lease.encode("utf-8", "surrogatepass")], checks
        case CancelQueued(checks, turns_ns):
            turns = [str(turn // MICROSECOND) for turn in turns_ns]
            return "vacate", [",".join(turns).encode()], checks
        case _:
            raise TypeError(f"no script for {operation!r}")


def _word(name: str) -> bytes:
    """A reservation's name without the sign that separates them."""
    return name.encode("utf-8", "surrogatepass").replace(b"%", b"%25").replace(b"|", b"%7C")


def asked(checks: Sequence[Check], names: Names) -> tuple[list[bytes], Arguments]:
    """The names of the counters, and what the scripts need to know of each check."""
    keys = []
    arguments: Arguments = []
    for check in checks:
        spec = spec_of(check.limit)
        keys.append(names.counter(check.group, check.key, spec.mark))
        arguments += spec.arguments(check.cost)
    return keys, arguments


def outcomes_of_take(checks: Sequence[Check], reply: Reply, now: int, *, consume: bool) -> Outcomes:
    """The outcomes of checks of which a script told where their counters stood before."""
    counters, waits = _counters(checks, reply, now)
    if reply[0]:
        waits = [0] * len(waits)
        if consume:
            for counter, check in zip(counters, checks, strict=True):
                if check.cost:
                    counter.charge(check.cost)
    elif waits.count(0) == len(waits):  # the server's word counts, should they ever differ
        waits = [MICROSECOND] * len(waits)
    return _outcomes(counters, waits)


def outcomes_granted(checks: Sequence[Check], replies: Reply, now: int) -> Outcomes:
    """The outcomes of checks that fitted, of which a script told how their counters stood before,
    which says when their turns are, and how they stand after."""
    before, (_, *after) = replies
    pairs = zip(checks, after, strict=True)
    outcomes = tuple(
        spec_of(check.limit).counter(told, now * MICROSECOND).outcome(0) for check, told in pairs
    )
    if not any(isinstance(check.limit, LeakyQueue) for check in checks):
        return outcomes
    turns = outcomes_of_take(checks, before, now, consume=False)
    return tuple(
        one._replace(delay_ns=turn.delay_ns, turn_ns=turn.turn_ns)
        for one, turn in zip(outcomes, turns, strict=True)
    )


def _counters(
    checks: Sequence[Check], reply: Reply, now: int
) -> tuple[list[Counter], list[int | None]]:
    """The counter of each check, and how long the check has to wait.

    Checks of one counter share it, and the second has to fit beside the first, or behind it.
    """
    first: dict[tuple[str, str], Counter] = {}
    asked: dict[tuple[str, str], int] = {}
    counters: list[Counter] = []
    waits: list[int | None] = []
    for check, told in zip(checks, reply[1:], strict=True):
        place = (check.group, check.key)
        counter = spec_of(check.limit).counter(told, now * MICROSECOND)
        shared = first.setdefault(place, counter)
        asked[place] = asked.get(place, 0) + check.cost
        if isinstance(shared, ToldQueue):
            waits.append(shared.wait(check.cost))
        else:
            waits.append(counter.wait(asked[place]) if check.cost else 0)
        counters.append(shared)
    return counters, waits


def _outcomes(counters: list[Counter], waits: list[int | None]) -> Outcomes:
    pairs = zip(counters, waits, strict=True)
    return tuple([counter.outcome(wait) for counter, wait in pairs])


def outcomes_of_one(checks: Sequence[Check], reply: Reply, now: int) -> Outcomes:
    """The outcomes of a cost of 1, of counters of which a script told how they stand after."""
    _, *told = reply
    outcomes = []
    for check, text in zip(checks, told, strict=True):
        counter = spec_of(check.limit).counter(text, now * MICROSECOND)
        outcomes.append(counter.outcome(counter.wait(1)))
    return tuple(outcomes)


# Leases and usage of other regions, as requests.


class LendRequest(ScriptRequest):
    """A check, and a loan."""

    __slots__ = ("_operation",)

    def __init__(self, operation: GrantLease, names: Names, now: bytes, waiter: Waiter) -> None:
        keys, specs = asked((operation.check,), names)
        arguments: Arguments = [
            now,
            _lending_word(operation.holder),
            _bounded(operation.most),
            operation.ttl_ns // MICROSECOND,
            _bounded(operation.unused),
            _bounded(operation.used),
            _bounded(operation.told),
            b"" if operation.cap is None else _bounded(operation.cap),
            int(operation.is_charged),
            1,
            *specs,
        ]
        super().__init__(script("lend"), keys, arguments)
        self._operation = operation
        self.waiter = waiter

    def answered(self, reply: Reply) -> None:
        now, taken, amount, lasts, holders, lent, after = listed(reply)
        if self.waiter.done():
            return
        check = self._operation.check
        (outcome,) = outcomes_of_take((check,), taken, now, consume=True)
        wanted = check.cost + self._operation.most
        counter = spec_of(check.limit).counter(after, now * MICROSECOND)
        wait = counter.wait(wanted) if wanted else 0
        wait_ns = None if wait is None else rounded_up(wait)
        lasts_ns = lasts * MICROSECOND
        self.waiter.set_result(LeaseGrant(outcome, amount, lasts_ns, holders, lent, wait_ns))

    def failed(self, error: StoreError) -> None:
        disappoint([self.waiter], error)


class AbsorbRequest(ScriptRequest):
    """What one origin has used of several counters."""

    __slots__ = ("_operation",)

    def __init__(self, operation: MergeUsage, names: Names, now: bytes, waiter: Waiter) -> None:
        keys, specs = asked(operation.checks, names)
        ttl = operation.ttl_ns // MICROSECOND
        about: Arguments = [
            _lending_word(operation.origin),
            operation.window,
            ttl,
            len(operation.checks),
        ]
        super().__init__(script("absorb"), keys, [now, *about, *specs])
        self._operation = operation
        self.waiter = waiter

    def answered(self, reply: Reply) -> None:
        now, told = listed(reply)
        if not self.waiter.done():
            self.waiter.set_result(outcomes_of_one(self._operation.checks, told, now))

    def failed(self, error: StoreError) -> None:
        disappoint([self.waiter], error)


def _lending_word(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def _bounded(amount: int) -> int:
    """*amount* as doubles can add it up."""
    return min(max(amount, 0), LARGEST_CHARGE)


# What is told and heard, as a request.


class ShareRequest(ScriptRequest):
    """What one origin makes of something, and what all do."""

    __slots__ = ()

    def __init__(self, operation: PublishValue, names: Names, now: bytes, waiter: Waiter) -> None:
        name = names.counter(operation.group, operation.key, VOICES)
        arguments: Arguments = [
            now,
            operation.origin.encode("utf-8", "surrogatepass"),
            _written(operation.value),
            _written(operation.weight) if operation.weight > 0 else b"",
            operation.ttl_ns // MICROSECOND,
            MOST_ORIGINS,
        ]
        super().__init__(script("share"), [name], arguments)
        self.waiter = waiter

    def answered(self, reply: Reply) -> None:
        if type(reply) is not list or len(reply) % 3:
            raise TypeError(f"origins, values and weights were expected, not {reply!r}")
        told = tuple(
            (origin.decode("utf-8", "surrogatepass"), float(value), float(weight))
            for origin, value, weight in zip(reply[::3], reply[1::3], reply[2::3], strict=True)
        )
        if not self.waiter.done():
            self.waiter.set_result(told)

    def failed(self, error: StoreError) -> None:
        disappoint([self.waiter], error)


def _written(number: float) -> bytes:
    """*number* in digits from which the very same is read."""
    return repr(float(number)).encode()
