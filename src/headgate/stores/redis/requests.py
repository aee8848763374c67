"""Requests to servers, and the operations of the store as such requests.

A request is one command for one server, sent at most once. The transport finds the server, sends
the request, and calls exactly one of `answered` and `failed`, exactly once. It sends a request
again only when the server has replied that it did not execute it: NOSCRIPT, MOVED, ASK, TRYAGAIN. A
request that may have been executed, because the connection broke or time was up after it was
written, fails.

A *waiter* waits for a result: an `asyncio.Future`, or a `PendingResult`. Several takes
make one request, each with a waiter of its own; an error of one of them reaches its waiter alone.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import hiredis

from headgate.limits import LeakyQueue
from headgate.stores.operations import (
    MOST_PUBLISHERS,
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
from headgate.stores.redis.codec import LARGEST_CHARGE, ReportedInstants, rounded_up, spec_of
from headgate.stores.redis.errors import store_error
from headgate.stores.redis.naming import LEASES, LOG, PARTITIONS, SLOTS, VALUES
from headgate.units import MICROSECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headgate.errors import StoreError
    from headgate.stores.operations import CheckOperation
    from headgate.stores.redis.codec import Counter
    from headgate.stores.redis.naming import Names

Arguments = list[bytes | int]

pack = cast("Callable[[tuple[bytes | str | int, ...]], bytes]", hiredis.pack_command)
"""Pack a command as it is sent."""

Reply = Any
"""A parsed reply: int, bytes, None, or a list of them.

An error inside a list is an instance of `hiredis.ReplyError`.
"""


class Request(ABC):
    """One command for one server. All its keys are in one slot."""

    __slots__ = ()

    @property
    @abstractmethod
    def key(self) -> bytes:
        """One of its keys: it decides which node of a cluster the request is for."""

    @abstractmethod
    def packed(self) -> bytes:
        """Return the command, ready to be written; a script by its digest."""

    @abstractmethod
    def packed_whole(self) -> bytes:
        """Return the command with the script's text, to be written after NOSCRIPT."""

    @abstractmethod
    def answered(self, reply: Reply) -> None:
        """Accept the *reply* of the server, which executed the command; it is no error."""

    @abstractmethod
    def failed(self, error: StoreError) -> None:
        """Accept the *error*: the command was not executed, or that is unknown."""

    def parts(self) -> Sequence[Request]:
        """Return smaller requests that together do the same, to be sent after TRYAGAIN."""
        return (self,)


# A line `--@ name name` in a Lua file includes the fragments of those names: what several scripts
# share is written once, and each script is still one text.
_INCLUDED: Final = re.compile(r"^ *--@ ([a-z_ ]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the digest by which the server knows it."""

    name: str
    text: bytes
    digest: bytes


@cache
def script(name: str) -> Script:
    """Return the script of the operation *name*."""
    text = _text(name).encode()
    return Script(name, text, sha1(text, usedforsecurity=False).hexdigest().encode())


def _text(name: str) -> str:
    source = files("headgate.stores.redis").joinpath("lua", f"{name}.lua").read_text("utf-8")
    return _INCLUDED.sub(lambda found: "\n".join(map(_text, found[1].split())), source)


class Waiter(Protocol):
    """The part of `asyncio.Future` that requests need."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...


class Command(Request):
    """One command that is no script, such as AUTH or ASKING, *packed*, about *key*."""

    __slots__ = ("_key", "_packed", "_reply")

    def __init__(self, packed: bytes, reply: Waiter | None = None, key: bytes = b"") -> None:
        self._packed = packed
        self._reply = reply
        self._key = key

    @property
    def key(self) -> bytes:
        return self._key

    def packed(self) -> bytes:
        return self._packed

    packed_whole = packed

    def answered(self, reply: Reply) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(reply)

    def failed(self, error: StoreError) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)


ASKING: Final = Command(b"*1\r\n$6\r\nASKING\r\n")
"""Precedes a request that was redirected by ASK. Its reply is ignored."""


def fail_waiters(waiters: Iterable[Waiter], error: StoreError) -> None:
    """Fail all *waiters* with *error*, each with a copy: an exception belongs to one caller."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error.copied())


def expect_list(reply: Reply) -> list[Reply]:
    """Return *reply*, which has to be a list, and not an empty one."""
    if type(reply) is not list or not reply:
        raise TypeError(f"expected a list, not {reply!r}")
    return reply


class ScriptCall(Request):
    """A call of a script: by its digest, or after NOSCRIPT with its text."""

    __slots__ = ("script",)

    script: Script

    @abstractmethod
    def pack(self, verb: bytes, text: bytes) -> bytes:
        """Return the command *verb* with *text*, the script or its digest."""

    def packed(self) -> bytes:
        return self.pack(b"EVALSHA", self.script.digest)

    def packed_whole(self) -> bytes:
        return self.pack(b"EVAL", self.script.text)


class ScriptRequest(ScriptCall):
    """One call of one script for one waiter.

    *read* makes the result of a reply; it raises one of `errors.UNREADABLE` if that is malformed.
    """

    __slots__ = ("arguments", "keys", "read", "waiter")

    def __init__(
        self,
        the_script: Script,
        keys: list[bytes],
        arguments: Arguments,
        waiter: Waiter,
        read: Callable[[Reply], object] = expect_list,
    ) -> None:
        self.script = the_script
        self.keys = keys
        self.arguments = arguments
        self.waiter = waiter
        self.read = read

    @property
    def key(self) -> bytes:
        return self.keys[0]

    def pack(self, verb: bytes, text: bytes) -> bytes:
        return pack((verb, text, len(self.keys), *self.keys, *self.arguments))

    def answered(self, reply: Reply) -> None:
        result = self.read(reply)
        if not self.waiter.done():  # a future of another package may be cancelled
            self.waiter.set_result(result)

    def failed(self, error: StoreError) -> None:
        fail_waiters((self.waiter,), error)


@dataclass(frozen=True, slots=True)
class Reserved:
    """Outcomes of a reservation that is confirmed at once: before it, and after the charge."""

    before: Outcomes
    after: Outcomes


@dataclass(frozen=True, slots=True)
class Reserve(Hold):
    """A hold that is confirmed at once, see `cluster`. Its reply is a `Reserved`."""


@cache
def _script_of(operation: str) -> Script:
    """Return the script of an operation, whose file has its name: take_up_to.lua of TakeUpTo."""
    return script(re.sub("(?<=[a-z])(?=[A-Z])", "_", operation).lower())


def request_for(operation: Operation[Any], names: Names, now: bytes, waiter: Waiter) -> Request:
    """Return the request of *operation*, which is not a take.

    *now* is the time for the scripts, empty for the server's clock.
    """
    kind = Hold if isinstance(operation, Reserve) else type(operation)
    its_script, own = _script_of(kind.__name__), _own_arguments(operation)
    if isinstance(operation, Reset):
        marks = ("", LOG, SLOTS, PARTITIONS, LEASES)
        found = [names.counter(one.group, one.key, mark)
                 for one in operation.checks for mark in marks]  # fmt: skip
        return ScriptRequest(its_script, found, [], waiter, lambda _: None)
    if isinstance(operation, PublishValue):
        name = names.counter(operation.group, operation.key, VALUES)
        return ScriptRequest(its_script, [name], [now, *own], waiter, _read_values)
    if isinstance(operation, GrantLease):
        checks: tuple[Check, ...] = (operation.check,)
    else:
        checks = cast("CheckOperation[Any]", operation).checks
    keys, specs = check_arguments(checks, names)
    arguments = [now, *own, len(checks), *specs]
    return ScriptRequest(its_script, keys, arguments, waiter, partial(_read, operation))


def _own_arguments(operation: Operation[Any]) -> Arguments:
    """Return the arguments of *operation* that come before its checks."""
    match operation:
        case Hold(_, name, ttl_ns, charges_expired):
            return [_escaped(name), ttl_ns // MICROSECOND, b"+" if charges_expired else b""]
        case Settle(_, name, charge_lapsed):
            return [_escaped(name), int(charge_lapsed)]
        case RenewSlot(_, lease) | ReleaseSlot(_, lease):
            return [_encoded(lease)]
        case CancelQueued(_, places_ns):
            return [b",".join([b"%d" % (place // MICROSECOND) for place in places_ns])]
        case MergeUsage(_, origin, window, ttl_ns, max_debt):
            debt = (b"", b"") if max_debt is None else max_debt.as_integer_ratio()
            return [_encoded(origin), window, ttl_ns // MICROSECOND, *debt]
        case GrantLease():
            cap = b"" if operation.cap is None else _bounded(operation.cap)
            amounts = map(_bounded, (operation.unused, operation.used, operation.reported))
            limits = [_bounded(operation.most), operation.ttl_ns // MICROSECOND]
            return [_encoded(operation.holder), *limits, *amounts, cap, int(operation.is_charged)]
        case PublishValue(_, _, origin, value, weight, ttl_ns):
            numbers = [_digits(value), _digits(weight) if weight > 0 else b""]
            return [_encoded(origin), *numbers, ttl_ns // MICROSECOND, MOST_PUBLISHERS]
        case _:
            return []


def _read(operation: Operation[Any], reply: Reply) -> object:
    """Return the result of *operation*."""
    match operation:
        case Reserve(checks=checks):
            now, states = expect_list(reply)[:2]
            before = outcomes_of_take(checks, states, now, consume=False)
            return Reserved(before, outcomes_of_take(checks, states, now, consume=True))
        case Hold(checks=checks) if expect_list(reply)[1][0]:
            return _outcomes_of_hold(checks, reply[1:], reply[0])
        case Hold(checks=checks):
            return outcomes_of_take(checks, reply[1], reply[0], consume=False)
        case Charge(checks=checks) | Refund(checks=checks) | MergeUsage(checks=checks):
            now, states = expect_list(reply)
            return outcomes_of_one_unit(checks, states, now)
        case TakeUpTo(checks=checks):
            now, granted, states = expect_list(reply)
            rest = [replace(check, cost=check.cost - granted) for check in checks]
            return granted, outcomes_of_take(rest, states, now, consume=False)
        case GrantLease():
            return _read_lease(operation, reply)
        case _:
            return reply == 1


def _read_lease(operation: GrantLease, reply: Reply) -> LeaseGrant:
    now, states, amount, lasts, holders, granted, after = expect_list(reply)
    check = operation.check
    (outcome,) = outcomes_of_take((check,), states, now, consume=True)
    units = check.cost + operation.most
    counter = spec_of(check.limit).counter(after, now * MICROSECOND)
    wait = counter.wait(units)
    wait_ns = None if wait is None else rounded_up(wait)
    return LeaseGrant(outcome, amount, lasts * MICROSECOND, holders, granted, wait_ns)


def _read_values(reply: Reply) -> tuple[tuple[str, float, float], ...]:
    if type(reply) is not list or len(reply) % 3:
        raise TypeError(f"expected origins, values and weights, not {reply!r}")
    return tuple(
        (origin.decode("utf-8", "surrogatepass"), float(value), float(weight))
        for origin, value, weight in zip(reply[::3], reply[1::3], reply[2::3], strict=True)
    )


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _escaped(name: str) -> bytes:
    """Encode the name of a reservation without the character that separates names."""
    return _encoded(name).replace(b"%", b"%25").replace(b"|", b"%7C")


def _bounded(amount: int) -> int:
    """Return *amount*, at most what doubles can add up exactly."""
    return min(max(amount, 0), LARGEST_CHARGE)


def _digits(number: float) -> bytes:
    """Write *number* in digits from which the very same number is read."""
    return repr(float(number)).encode()


class BatchCall(ScriptCall):
    """A call of a script with the entries of several waiters."""

    __slots__ = ("entries",)

    entries: list[Any]

    def parts(self) -> Sequence[Request]:
        parts = [copy(self) for _ in self.entries]
        for part, entry in zip(parts, self.entries, strict=True):
            part.entries = [entry]
        return parts


class TakeBatch(BatchCall):
    """Takes of many waiters, each for itself, in the order in which they were added.

    The arguments of each are packed when it is added.
    """

    __slots__ = ("_now",)

    def __init__(self, now: bytes) -> None:
        self.script = script("take")
        self._now = now
        self.entries: list[
            tuple[Sequence[bytes], int, bytes, Callable[[Reply, int], Outcomes], Waiter]
        ] = []

    @property
    def key(self) -> bytes:
        return self.entries[0][0][0]

    def add(
        self,
        keys: Sequence[bytes],
        arguments: tuple[int, bytes],
        read: Callable[[Reply, int], Outcomes],
        waiter: Waiter,
    ) -> int:
        """Add a take of *keys*; return the number of takes.

        *arguments* are their number and themselves, packed. *read* makes outcomes of the states
        before the take and the time.
        """
        self.entries.append((keys, *arguments, read, waiter))
        return len(self.entries)

    def pack(self, verb: bytes, text: bytes) -> bytes:
        keys = [key for entry in self.entries for key in entry[0]]
        count = 4 + len(keys) + sum([entry[1] for entry in self.entries])
        _, begin = packed_arguments(verb, text, len(keys), *keys, self._now)
        return b"".join([b"*%d\r\n" % count, begin, *[entry[2] for entry in self.entries]])

    def answered(self, reply: Reply) -> None:
        now, *replies = expect_list(reply)
        for (_, _, _, read, waiter), states in zip(self.entries, replies, strict=True):
            if isinstance(states, hiredis.ReplyError):
                fail_waiters((waiter,), store_error(str(states), "the store"))
            else:
                waiter.set_result(read(states, now))

    def failed(self, error: StoreError) -> None:
        fail_waiters([entry[-1] for entry in self.entries], error)


def take_arguments(
    take: Take, names: Names
) -> tuple[list[bytes], tuple[int, bytes], Callable[[Reply, int], Outcomes]]:
    """Return the keys, the arguments and the reader of *take* for `TakeBatch.add`."""
    keys, specs = check_arguments(take.checks, names)
    arguments = packed_arguments(
        int(take.consume), _encoded(take.lease or ""), len(take.checks), *specs
    )

    def read(states: Reply, now: int) -> Outcomes:
        return outcomes_of_take(take.checks, states, now, consume=take.consume)

    return keys, arguments, read


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
    """Return the outcomes of checks, from the states of their counters before the take.

    Checks of one counter share it, and the second has to fit beside the first, or behind it.
    """
    fits, *before = states
    shared: dict[tuple[str, str], Counter] = {}
    counters: list[Counter] = []
    waits: list[int | None] = []
    for check, state in zip(checks, before, strict=True):
        counter = spec_of(check.limit).counter(state, now * MICROSECOND)
        first = shared.setdefault((check.group, check.key), counter)
        waiting = counter if isinstance(counter, ReportedInstants) else first
        waits.append(waiting.wait(check.cost))
        counters.append(first)
    if fits:
        waits = [0] * len(waits)
        for counter, check in zip(counters, checks, strict=True):
            counter.charge(check.cost if consume else 0)
    elif waits.count(0) == len(waits):  # the server decides, should they ever differ
        waits = [MICROSECOND] * len(waits)
    pairs = zip(counters, waits, strict=True)
    return tuple([counter.outcome(wait) for counter, wait in pairs])


def _outcomes_of_hold(checks: Sequence[Check], replies: Reply, now: int) -> Outcomes:
    """Return the outcomes of checks that fit, from the states before and after.

    The places in queues come from the states before.
    """
    before, (_, *after) = replies
    pairs = zip(checks, after, strict=True)
    outcomes = tuple(
        spec_of(check.limit).counter(state, now * MICROSECOND).outcome(0) for check, state in pairs
    )
    if not any(isinstance(check.limit, LeakyQueue) for check in checks):
        return outcomes
    places = outcomes_of_take(checks, before, now, consume=False)
    return tuple(
        one._replace(delay_ns=place.delay_ns, place_ns=place.place_ns)
        for one, place in zip(outcomes, places, strict=True)
    )


def outcomes_of_one_unit(checks: Sequence[Check], states: Reply, now: int) -> Outcomes:
    """Return the outcomes of a cost of 1, from the states of the counters afterwards."""
    _, *after = states
    outcomes = []
    for check, state in zip(checks, after, strict=True):
        counter = spec_of(check.limit).counter(state, now * MICROSECOND)
        outcomes.append(counter.outcome(counter.wait(1)))
    return tuple(outcomes)
