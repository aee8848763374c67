"""Operations as requests: the script and its arguments, and the result made of the reply.

A *waiter* waits for a result: an `asyncio.Future`, or a thread's `BlockingResult`. Several takes
make one request, each with a waiter of its own; an error of one of them reaches its waiter alone.
"""

from __future__ import annotations

from dataclasses import replace
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
    TakeUpTo,
)
from headgate.stores.redis.cluster_split import Reserve, Reserved
from headgate.stores.redis.codec import LARGEST_CHARGE, Counter, QueueCounter, rounded_up, spec_of
from headgate.stores.redis.errors import store_error
from headgate.stores.redis.naming import LEASES, LOG, PARTITIONS, SLOTS, VALUES
from headgate.stores.redis.request import Reply, Request, Script, script
from headgate.units import MICROSECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headgate.errors import StoreError
    from headgate.stores.redis.naming import Names

Arguments = list[bytes | int]

pack = cast("Callable[[tuple[bytes | int, ...]], bytes]", hiredis.pack_command)
"""Pack a command as it is sent."""


class Waiter(Protocol):
    """The part of `asyncio.Future` that requests need."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...


def fail_waiters(waiters: Iterable[Waiter], error: StoreError) -> None:
    """Fail all *waiters* with *error*, each with a copy: exceptions are not for sharing."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error.copied())


def expect_list(reply: Reply) -> list[Reply]:
    """Return *reply*, which has to be a list, and not an empty one."""
    if type(reply) is not list or not reply:
        raise TypeError(f"expected a list, not {reply!r}")
    return reply


class ScriptRequest(Request):
    """One call of one script for one waiter."""

    __slots__ = ("arguments", "keys", "script", "waiter")

    def __init__(
        self, the_script: Script, keys: list[bytes], arguments: Arguments, waiter: Waiter
    ) -> None:
        self.script = the_script
        self.keys = keys
        self.arguments = arguments
        self.waiter = waiter

    @property
    def key(self) -> bytes:
        return self.keys[0]

    def packed(self) -> bytes:
        keys = self.keys
        return pack((b"EVALSHA", self.script.digest, len(keys), *keys, *self.arguments))

    def packed_whole(self) -> bytes:
        return pack((b"EVAL", self.script.text, len(self.keys), *self.keys, *self.arguments))

    def answered(self, reply: Reply) -> None:
        result = self.result(reply)
        if not self.waiter.done():
            self.waiter.set_result(result)

    def result(self, reply: Reply) -> object:
        """Return the result for *reply*; raise one of `errors.UNREADABLE` if it is malformed."""
        return expect_list(reply)

    def failed(self, error: StoreError) -> None:
        fail_waiters((self.waiter,), error)


def request_for(operation: Operation[Any], names: Names, now: bytes, waiter: Waiter) -> Request:
    """Return the request of *operation*, which is not a take.

    *now* is the time for the scripts, empty for the server's clock.
    """
    match operation:
        case Reset():
            return ResetRequest(operation, names, waiter)
        case GrantLease():
            return GrantLeaseRequest(operation, names, now, waiter)
        case MergeUsage():
            return MergeUsageRequest(operation, names, now, waiter)
        case PublishValue():
            return PublishValueRequest(operation, names, now, waiter)
        case _:
            return OperationRequest(operation, names, now, waiter)


class OperationRequest(ScriptRequest):
    """An operation on checks, other than a take."""

    __slots__ = ("_operation",)

    def __init__(self, operation: Operation[Any], names: Names, now: bytes, waiter: Waiter) -> None:
        name, arguments, checks = _parts(operation)
        keys, specs = check_arguments(checks, names)
        super().__init__(script(name), keys, [now, *arguments, len(checks), *specs], waiter)
        self._operation = operation

    def result(self, reply: Reply) -> object:
        match self._operation:
            case Reserve(checks=checks):
                now, states = expect_list(reply)[:2]
                before, after = (
                    outcomes_of_take(checks, states, now, consume=consume)
                    for consume in (False, True)
                )
                return Reserved(before, after)
            case Hold(checks=checks) if expect_list(reply)[1][0]:
                return _outcomes_of_hold(checks, reply[1:], reply[0])
            case Hold(checks=checks):
                return outcomes_of_take(checks, reply[1], reply[0], consume=False)
            case Charge(checks=checks) | Refund(checks=checks):
                now, states = expect_list(reply)
                return outcomes_of_one_unit(checks, states, now)
            case TakeUpTo(checks=checks):
                now, granted, states = expect_list(reply)
                rest = [replace(check, cost=check.cost - granted) for check in checks]
                return granted, outcomes_of_take(rest, states, now, consume=False)
            case _:
                return reply == 1


def _parts(operation: Operation[Any]) -> tuple[str, Arguments, tuple[Check, ...]]:
    """Return the script of *operation*, its own arguments, and its checks."""
    match operation:
        case Hold(checks, name, ttl_ns):
            return "hold", [_escaped(name), ttl_ns // MICROSECOND], checks
        case Settle(checks, name, charge_lapsed):
            return "settle", [_escaped(name), int(charge_lapsed)], checks
        case TakeUpTo(checks):
            return "take_up_to", [], checks
        case Charge(checks):
            return "charge", [], checks
        case Refund(checks):
            return "refund", [], checks
        case RenewSlot(checks, lease):
            return "renew_slot", [_encoded(lease)], checks
        case ReleaseSlot(checks, lease):
            return "release_slot", [_encoded(lease)], checks
        case CancelQueued(checks, turns_ns):
            turns = [str(turn // MICROSECOND) for turn in turns_ns]
            return "cancel_queued", [",".join(turns).encode()], checks
        case _:
            raise TypeError(f"no script for {operation!r}")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _escaped(name: str) -> bytes:
    """The name of a reservation, without the character that separates them."""
    return _encoded(name).replace(b"%", b"%25").replace(b"|", b"%7C")


class ResetRequest(Request):
    """One command that deletes counters; no script is needed."""

    __slots__ = ("_keys", "_waiter")

    def __init__(self, operation: Reset, names: Names, waiter: Waiter) -> None:
        self._waiter = waiter
        self._keys = [
            names.counter(check.group, check.key, mark)
            for check in operation.checks
            for mark in ("", LOG, SLOTS, PARTITIONS, LEASES)
        ]

    @property
    def key(self) -> bytes:
        return self._keys[0]

    def packed(self) -> bytes:
        return pack((b"UNLINK", *self._keys))

    packed_whole = packed

    def answered(self, reply: Reply) -> None:
        if not self._waiter.done():
            self._waiter.set_result(None)

    def failed(self, error: StoreError) -> None:
        fail_waiters((self._waiter,), error)


class GrantLeaseRequest(ScriptRequest):
    """A check, and a lease of the same counter."""

    __slots__ = ("_operation",)

    def __init__(self, operation: GrantLease, names: Names, now: bytes, waiter: Waiter) -> None:
        keys, specs = check_arguments((operation.check,), names)
        arguments: Arguments = [
            now,
            _encoded(operation.holder),
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
        super().__init__(script("grant_lease"), keys, arguments, waiter)
        self._operation = operation

    def result(self, reply: Reply) -> object:
        now, states, amount, lasts, holders, granted, after = expect_list(reply)
        check = self._operation.check
        (outcome,) = outcomes_of_take((check,), states, now, consume=True)
        wanted = check.cost + self._operation.most
        counter = spec_of(check.limit).counter(after, now * MICROSECOND)
        wait = counter.wait(wanted) if wanted else 0
        wait_ns = None if wait is None else rounded_up(wait)
        return LeaseGrant(outcome, amount, lasts * MICROSECOND, holders, granted, wait_ns)


class MergeUsageRequest(ScriptRequest):
    """The usage of several counters in another region."""

    __slots__ = ("_checks",)

    def __init__(self, operation: MergeUsage, names: Names, now: bytes, waiter: Waiter) -> None:
        keys, specs = check_arguments(operation.checks, names)
        arguments: Arguments = [
            now,
            _encoded(operation.origin),
            operation.window,
            operation.ttl_ns // MICROSECOND,
            len(operation.checks),
            *specs,
        ]
        super().__init__(script("merge_usage"), keys, arguments, waiter)
        self._checks = operation.checks

    def result(self, reply: Reply) -> object:
        now, states = expect_list(reply)
        return outcomes_of_one_unit(self._checks, states, now)


def _bounded(amount: int) -> int:
    """*amount* as doubles can add it up."""
    return min(max(amount, 0), LARGEST_CHARGE)


class PublishValueRequest(ScriptRequest):
    """The value of one origin, and those of all."""

    __slots__ = ()

    def __init__(self, operation: PublishValue, names: Names, now: bytes, waiter: Waiter) -> None:
        name = names.counter(operation.group, operation.key, VALUES)
        arguments: Arguments = [
            now,
            _encoded(operation.origin),
            _digits(operation.value),
            _digits(operation.weight) if operation.weight > 0 else b"",
            operation.ttl_ns // MICROSECOND,
            MOST_ORIGINS,
        ]
        super().__init__(script("publish_value"), [name], arguments, waiter)

    def result(self, reply: Reply) -> object:
        if type(reply) is not list or len(reply) % 3:
            raise TypeError(f"expected origins, values and weights, not {reply!r}")
        return tuple(
            (origin.decode("utf-8", "surrogatepass"), float(value), float(weight))
            for origin, value, weight in zip(reply[::3], reply[1::3], reply[2::3], strict=True)
        )


def _digits(number: float) -> bytes:
    """*number* in digits from which the very same is read."""
    return repr(float(number)).encode()


Read = "Callable[[Reply, int], Outcomes]"
"""Makes outcomes of a take's part of the reply and the time of the script."""


class TakeBatch(Request):
    """Takes of many waiters, each for itself, in the order in which they were added.

    The arguments of each are packed when it is added.
    """

    __slots__ = ("_entries", "_now")

    def __init__(self, now: bytes) -> None:
        self._now = now
        self._entries: list[tuple[Sequence[bytes], int, bytes, Any, Waiter]] = []

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def key(self) -> bytes:
        return self._entries[0][0][0]

    def add_take(self, take: Take, names: Names, waiter: Waiter) -> None:
        """Add *take*. May raise; then nothing is added."""
        keys, specs = check_arguments(take.checks, names)
        lease = _encoded(take.lease or "")
        count, packed = packed_arguments(int(take.consume), lease, len(take.checks), *specs)

        def read(states: Reply, now: int) -> Outcomes:
            return outcomes_of_take(take.checks, states, now, consume=take.consume)

        self._entries.append((keys, count, packed, read, waiter))

    def add(
        self, keys: Sequence[bytes], arguments: tuple[int, bytes], read: Any, waiter: Waiter
    ) -> None:
        """Add a take of *keys* with its packed *arguments* and their count."""
        self._entries.append((keys, *arguments, read, waiter))

    def packed(self) -> bytes:
        return self._packed(b"EVALSHA", script("take").digest)

    def packed_whole(self) -> bytes:
        return self._packed(b"EVAL", script("take").text)

    def _packed(self, verb: bytes, text: bytes) -> bytes:
        keys = [key for entry in self._entries for key in entry[0]]
        count = 4 + len(keys) + sum([entry[1] for entry in self._entries])
        _, begin = packed_arguments(verb, text, len(keys), *keys, self._now)
        return b"".join([b"*%d\r\n" % count, begin, *[entry[2] for entry in self._entries]])

    def answered(self, reply: Reply) -> None:
        now, *replies = expect_list(reply)
        for (_, _, _, read, waiter), states in zip(self._entries, replies, strict=True):
            if isinstance(states, hiredis.ReplyError):
                fail_waiters((waiter,), store_error(str(states), "the store"))
            elif not waiter.done():
                waiter.set_result(read(states, now))

    def failed(self, error: StoreError) -> None:
        fail_waiters([entry[-1] for entry in self._entries], error)

    def parts(self) -> Sequence[Request]:
        if len(self._entries) == 1:
            return (self,)
        parts = []
        for entry in self._entries:
            part = TakeBatch(self._now)
            part._entries.append(entry)
            parts.append(part)
        return parts


def packed_arguments(*arguments: bytes | int) -> tuple[int, bytes]:
    """Return the number of *arguments*, and these packed, as a part of a command."""
    packed = pack(arguments)
    return len(arguments), packed[packed.index(b"\n") + 1 :]


def check_arguments(checks: Sequence[Check], names: Names) -> tuple[list[bytes], Arguments]:
    """Return the names of the counters, and the arguments of the checks."""
    keys = []
    arguments: Arguments = []
    for check in checks:
        spec = spec_of(check.limit)
        keys.append(names.counter(check.group, check.key, spec.mark))
        arguments += spec.arguments(check.cost)
    return keys, arguments


def outcomes_of_take(
    checks: Sequence[Check], states: Reply, now: int, *, consume: bool
) -> Outcomes:
    """Return the outcomes of checks, from the states of their counters before the take."""
    counters, waits = _asked(checks, states, now)
    if states[0]:
        waits = [0] * len(waits)
        if consume:
            for counter, check in zip(counters, checks, strict=True):
                if check.cost:
                    counter.charge(check.cost)
    elif waits.count(0) == len(waits):  # the server decides, should they ever differ
        waits = [MICROSECOND] * len(waits)
    pairs = zip(counters, waits, strict=True)
    return tuple([counter.outcome(wait) for counter, wait in pairs])


def _asked(
    checks: Sequence[Check], states: Reply, now: int
) -> tuple[list[Counter], list[int | None]]:
    """Return the counter of each check, and how long the check has to wait.

    Checks of one counter share it, and the second has to fit beside the first, or behind it.
    """
    first: dict[tuple[str, str], Counter] = {}
    asked: dict[tuple[str, str], int] = {}
    counters: list[Counter] = []
    waits: list[int | None] = []
    for check, state in zip(checks, states[1:], strict=True):
        place = (check.group, check.key)
        counter = spec_of(check.limit).counter(state, now * MICROSECOND)
        shared = first.setdefault(place, counter)
        asked[place] = asked.get(place, 0) + check.cost
        if isinstance(shared, QueueCounter):
            waits.append(shared.wait(check.cost))
        else:
            waits.append(counter.wait(asked[place]) if check.cost else 0)
        counters.append(shared)
    return counters, waits


def _outcomes_of_hold(checks: Sequence[Check], replies: Reply, now: int) -> Outcomes:
    """Return the outcomes of checks that fit, from the states before and after.

    The states before say when the turns of queues are.
    """
    before, (_, *after) = replies
    pairs = zip(checks, after, strict=True)
    outcomes = tuple(
        spec_of(check.limit).counter(state, now * MICROSECOND).outcome(0) for check, state in pairs
    )
    if not any(isinstance(check.limit, LeakyQueue) for check in checks):
        return outcomes
    turns = outcomes_of_take(checks, before, now, consume=False)
    return tuple(
        one._replace(delay_ns=turn.delay_ns, turn_ns=turn.turn_ns)
        for one, turn in zip(outcomes, turns, strict=True)
    )


def outcomes_of_one_unit(checks: Sequence[Check], states: Reply, now: int) -> Outcomes:
    """Return the outcomes of a cost of 1, from the states of the counters afterwards."""
    _, *after = states
    outcomes = []
    for check, state in zip(checks, after, strict=True):
        counter = spec_of(check.limit).counter(state, now * MICROSECOND)
        outcomes.append(counter.outcome(counter.wait(1)))
    return tuple(outcomes)
