"""A Redis cluster: slots and their owners, redirections, and operations over several slots. No I/O.

A request is for one slot. An operation whose keys are in different slots is a number of steps. A
step is a list of operations that may run at the same time. All or nothing takes two steps here:
every part is reserved, and then all parts are confirmed or all are returned. Reserved units are
not free for other callers, so a check that was allowed is charged in full. If the caller dies in
between, its units stay reserved until the reservation expires, after `CONFIRM_WITHIN_NS` at most:
in those slots that were not confirmed, nothing is charged.

A place in a queue cannot be reserved and confirmed: it is taken. So queues are read first, and
taken from once all else is reserved. Only if one of several has filled up in between, places are
given up again; one whose time has come by then is lost.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.errors import StoreError, UsageError
from headgate.limits import Concurrency
from headgate.server_urls import Address
from headgate.stores.base import reject_partial, reject_undivided
from headgate.stores.operations import (
    CancelQueued,
    Charge,
    Check,
    CheckOperation,
    GrantLease,
    Hold,
    MergeUsage,
    Operation,
    Outcomes,
    Refund,
    ReleaseSlot,
    Reset,
    Settle,
    Take,
    TakeUpTo,
)
from headgate.stores.redis import errors
from headgate.stores.redis.connection import Backoff, Endpoint, ask_each
from headgate.stores.redis.naming import CLUSTER_SLOTS
from headgate.stores.redis.requests import Reserve, Reserved
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.algorithms import Outcome
    from headgate.runtime.effects import Effects
    from headgate.stores.redis.naming import Names
    from headgate.stores.redis.requests import Reply, Request
    from headgate.stores.redis.url import RedisURL

MOST_DETOURS: Final = 5
"""Times that a request is sent again, other than after TRYAGAIN."""
_SHORTEST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.1
_MAP_SPACING: Final = 0.1  # seconds between two requests for the map

SlotMap = list["Address | None"]
"""The primary of each slot."""


def redirection(text: str, server: Address) -> tuple[int, Address] | None:
    """Return slot and node of a reply of *server* such as `MOVED 3999 host:port`, or of ASK."""
    try:
        code, slot, place = text.split(" ")[:3]
        host, _, port = place.rpartition(":")
        found = int(slot) % CLUSTER_SLOTS, _address(host, int(port), server)
    except ValueError:
        return None
    return found if code in ("MOVED", "ASK") else None


def owners(reply: Reply, server: Address) -> SlotMap:
    """Return the primary of each slot, out of the reply of *server* to CLUSTER SLOTS."""
    found: SlotMap = [None] * CLUSTER_SLOTS
    for first, last, (host, port, *_), *_replicas in reply:
        address = _address((host or b"").decode(), int(port), server)
        found[int(first) : int(last) + 1] = [address] * (int(last) + 1 - int(first))
    return found


def _address(host: str, port: int, server: Address) -> Address:
    """Return the address of a node; one that does not know its own host is where *server* is."""
    host = host.removeprefix("[").removesuffix("]")
    return Address(server.host if host in ("", "?") else host, port)


@dataclass(slots=True)
class Attempt:
    """A request to be sent to *target*, or else to the owner of its slot."""

    request: Request
    target: Address | None = None
    detours: int = 0
    """Times that it has been sent again, other than after TRYAGAIN."""
    asking: bool = False
    """True if ASKING precedes it."""
    is_whole: bool = False
    """True if it is sent with the script's text."""
    waits: bool = False
    """True if it is sent a little later."""

    def packed(self) -> bytes:
        """Return the command."""
        return self.request.packed_whole() if self.is_whole else self.request.packed()


@dataclass(frozen=True, slots=True)
class Failure:
    """A request fails with *error*. If *is_stale*, find the server again."""

    error: StoreError
    is_stale: bool


def pause(timeout: float, left: float) -> float:
    """Return the seconds to wait after TRYAGAIN: the more, the longer it has been going on."""
    return min(_LONGEST_PAUSE, max(_SHORTEST_PAUSE, (timeout - left) / 4))


class Nodes:
    """The nodes of a cluster as far as known, and the time to request the map again.

    The map of a single server is empty. A caller that performs `dial` reports its beginning and its
    end. Times are monotonic.
    """

    def __init__(self, url: RedisURL) -> None:
        self.owners: SlotMap = [None] * (CLUSTER_SLOTS if url.is_cluster else 0)
        self.is_known = False
        self.is_stale = True
        self._url = url
        self._known: tuple[Address, ...] = url.addresses
        self._backoff = Backoff()
        self._not_before = 0.0

    def dial(self, deadline: float) -> Effects[SlotMap]:
        """Ask one node after the other for the map, until *deadline*."""
        nodes = [Endpoint(self._url, address) for address in self._known]
        server, found = yield from ask_each(nodes, deadline, ("CLUSTER", "SLOTS"), _read_map)
        primaries = sorted({one for one in found if one is not None})
        self._known = tuple(dict.fromkeys((server.address, *primaries, *self._url.addresses)))
        return found

    def owner_of(self, slot: int) -> str:
        """Return the address of the node that serves *slot*; "" if that is not known."""
        address = self.owners[slot] if self.owners else None
        return "" if address is None else _shown(address)

    def react(
        self, sent: Attempt, server: Address, where: str, text: str
    ) -> Failure | list[Attempt]:
        """Return what to send after the error reply *text* of the server *server*, or the failure.

        The server has not executed a request that is sent again. *where* is its name in messages.
        """
        request, code = sent.request, text.partition(" ")[0]
        if sent.detours < MOST_DETOURS:
            again = Attempt(request, server, sent.detours + 1)
            if code == "NOSCRIPT":
                # After a redirection the node may be one that needs ASKING.
                return [replace(again, asking=sent.detours > 0, is_whole=True)]
            if self.owners and code == "TRYAGAIN":
                parts = request.parts()
                return [Attempt(part, None, sent.detours, waits=len(parts) == 1) for part in parts]
            if self.owners and (found := redirection(text, server)):
                slot, address = found
                if code == "MOVED":
                    self.owners[slot] = address
                    self.is_stale = True
                return [replace(again, target=address, asking=code == "ASK")]
        if self.owners and code in ("MOVED", "ASK"):
            lost = (
                f"{where}: nodes of the cluster redirected a request {sent.detours} times: {text}"
            )
            return Failure(StoreError(lost, reason="cluster_down"), is_stale=True)
        error = errors.store_error(text, where)
        return Failure(error, is_stale=error.reason in ("readonly", "cluster_down"))

    def is_due(self, now: float) -> bool:
        """Return True if a new map is needed and may be requested at *now*."""
        return self.is_stale and now >= self._not_before and self._backoff.pause_error(now) is None

    def spacing(self, now: float) -> float:
        """Return the seconds from *now* until the map may be requested again."""
        return max(self._not_before - now, 0.0)

    def begin(self, now: float) -> None:
        """Begin to request a map: from now on `is_stale` is about the new one."""
        self.is_stale = False
        self._not_before = now + _MAP_SPACING

    def learned(self, found: SlotMap) -> None:
        """Use the map that was found."""
        self.owners = found
        self.is_known = True
        self._backoff.succeeded()

    def failed(self, error: StoreError, now: float) -> None:
        """Begin a pause: no node answered."""
        self.is_stale = True
        self._backoff.failed(error, now)

    def unserved(self, slot: int, now: float) -> StoreError:
        """Return the error of a request for *slot*, whose node is not known: it was not sent."""
        text = f"no node of the cluster serves slot {slot}"
        unowned = StoreError(text, reason="cluster_down", is_undone=True)
        return self._backoff.pause_error(now) or unowned


@lru_cache(maxsize=256)
def _shown(address: Address) -> str:
    return str(address)


def _read_map(server: Endpoint, reply: Reply) -> SlotMap:
    try:
        found = owners(reply, server.address)
    except (TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"{server} gives no map of slots: {reply!r}") from error
    if not any(found):
        raise StoreError(f"{server} knows of no slot that is served", reason="cluster_down")
    return found


# Operations over several slots.

C = TypeVar("C", bound=CheckOperation[Any])

CONFIRM_WITHIN_NS: Final = 10 * SECOND
"""Time that a part of a check stays reserved if its caller dies before it confirms."""

Steps = Generator[Sequence[Operation[Any]], list[Any], Any]
"""Yields operations to run, is sent their results (or a `StoreError` each), returns one."""


Group = list[int]
"""The places, in the operation, of the checks whose counters are in one slot."""


def slot_groups(operation: Operation[Any], names: Names) -> list[Group]:
    """Return the checks of *operation* by slot; one group if one request is enough.

    Raises `UsageError` for one that is not for slots, or whose keys have to be in one slot.
    """
    if isinstance(operation, GrantLease):
        reject_undivided((operation.check.limit,), "GrantLease")
    if not isinstance(operation, CheckOperation):
        return [[0]]
    if isinstance(operation, MergeUsage):
        reject_undivided((check.limit for check in operation.checks), "MergeUsage")
    found: dict[bytes, Group] = {}
    for place, check in enumerate(operation.checks):
        tag = names.tag(names.counter(check.group, check.key))
        found.setdefault(tag, []).append(place)
    if isinstance(operation, TakeUpTo):
        reject_partial([check.limit for check in operation.checks], "hit_up_to")
        if len(found) > 1:
            raise UsageError("the checks of a TakeUpTo have different keys; expected one key")
    return list(found.values())


def first_name(operation: Operation[Any], names: Names) -> bytes:
    """Return the name of the first counter of *operation*."""
    subject: Any = operation
    if isinstance(operation, CheckOperation):
        subject = operation.checks[0]
    elif isinstance(operation, GrantLease):
        subject = operation.check
    return names.counter(subject.group, subject.key)


def split(operation: CheckOperation[Any], groups: list[Group]) -> Steps:
    """Return the steps of *operation*, whose checks are in several *groups*."""
    match operation:
        case Take(consume=True):
            return _take(operation, groups)
        case Hold():
            return _hold(operation, groups)
        case _:
            return _each(operation, groups)


def _each(operation: CheckOperation[Any], groups: list[Group]) -> Steps:
    """Run each part by itself."""
    results = yield [_part(operation, group) for group in groups]
    _raise_first(results, is_given_back=False)
    if isinstance(operation, Take | Charge | Refund | MergeUsage):
        return _in_order(groups, results)
    return None if isinstance(operation, Reset) else all(results)


def _hold(operation: Hold, groups: list[Group]) -> Steps:
    parts = [_part(operation, group) for group in groups]
    results = yield parts
    if not all(_is_granted(result) for result in results):
        yield _undoing(parts, results)
    _raise_first(results, is_given_back=True)
    return _in_order(groups, results)


def _take(operation: Take, groups: list[Group]) -> Steps:
    name = token_hex(12)
    parts: list[Reserve | Take] = []
    places: list[Group] = []
    for group in groups:
        rates = [n for n in group if operation.checks[n].limit.is_divisible]
        slots = [n for n in group if isinstance(operation.checks[n].limit, Concurrency)]
        queues = [n for n in group if n not in rates and n not in slots]
        if rates:
            parts.append(Reserve(_checks(operation, rates), name, CONFIRM_WITHIN_NS))
            places.append(rates)
        if slots:
            parts.append(Take(_checks(operation, slots), lease=operation.lease))
            places.append(slots)
        if queues:
            parts.append(Take(_checks(operation, queues), consume=False))
            places.append(queues)
    results = yield parts
    if all(_is_granted(result) for result in results):
        yield from _enter_queues(parts, results)
    if all(_is_granted(result) for result in results):
        yield [Settle(part.checks, name, charge_lapsed=True)
               for part in parts if isinstance(part, Reserve)]  # fmt: skip
        return _in_order(places, [_after(result) for result in results])
    yield _undoing(parts, results)
    _raise_first(results, is_given_back=True)
    return _in_order(places, [_before(result) for result in results])


def _enter_queues(parts: list[Reserve | Take], results: list[Any]) -> Steps:
    """Take places in the queues that were read; replace their *parts* and *results*."""
    looks = [n for n, part in enumerate(parts) if isinstance(part, Take) and not part.consume]
    if looks:
        takes = [Take(parts[n].checks) for n in looks]
        taken = yield takes
        for n, take, result in zip(looks, takes, taken, strict=True):
            parts[n], results[n] = take, result


def _undoing(parts: Sequence[Hold | Take], results: list[Any]) -> list[Operation[Any]]:
    """Return operations that return all that was reserved or taken, or may have been."""
    undoing: list[Operation[Any]] = []
    for part, result in zip(parts, results, strict=True):
        if not isinstance(result, StoreError) and not _is_granted(result):
            continue  # (a server that did not reply may have granted it)
        if isinstance(part, Hold):
            nothing = tuple(replace(check, cost=0) for check in part.checks)
            undoing.append(Settle(nothing, part.name, charge_lapsed=False))
        elif isinstance(part.checks[0].limit, Concurrency):
            undoing.append(ReleaseSlot(part.checks, part.lease or ""))
        if (isinstance(part, Hold) or part.consume) and not isinstance(result, StoreError):
            undoing += _vacating(part.checks, _before(result))
    return undoing


def _vacating(checks: Sequence[Check], outcomes: Outcomes) -> list[CancelQueued]:
    """Return operations that give up the places in queues among *outcomes*."""
    queued = [(c, one.place_ns) for c, one in zip(checks, outcomes, strict=True) if one.place_ns]
    if not queued:
        return []
    places, places_ns = zip(*queued, strict=True)
    return [CancelQueued(places, places_ns)]


def _part(operation: C, group: Group) -> C:
    """Return the part of *operation* for the checks of *group*."""
    part = replace(operation, checks=_checks(operation, group))
    if isinstance(part, CancelQueued):
        return replace(part, places_ns=tuple([part.places_ns[place] for place in group]))
    return part


def _is_granted(result: Any) -> bool:
    if isinstance(result, StoreError):
        return False
    return all(outcome.allowed for outcome in _before(result))


def _before(result: Reserved | Outcomes) -> Outcomes:
    return result.before if isinstance(result, Reserved) else result


def _after(result: Reserved | Outcomes) -> Outcomes:
    return result.after if isinstance(result, Reserved) else result


def _checks(operation: CheckOperation[Any], group: Group) -> tuple[Check, ...]:
    return tuple(operation.checks[place] for place in group)


def _in_order(groups: list[Group], results: list[Outcomes]) -> Outcomes:
    """Return the outcomes of all groups, in the order of the checks."""
    by_place: dict[int, Outcome] = {}
    for group, outcomes in zip(groups, results, strict=True):
        by_place.update(zip(group, outcomes, strict=True))
    return tuple(by_place[place] for place in sorted(by_place))


def _raise_first(results: list[Any], *, is_given_back: bool) -> None:
    """Raise the first error, if there is one.

    It is undone if no part was done, or if the parts that were done are returned.
    """
    failed = [result for result in results if isinstance(result, StoreError)]
    if not failed:
        return
    is_undone = is_given_back or len(failed) == len(results)
    failed[0].is_undone = is_undone and all(error.is_undone for error in failed)
    raise failed[0]
