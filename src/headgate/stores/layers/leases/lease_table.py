"""The leases of one node: the whole logic, without I/O, clock or thread.

The time of the node comes in as *now_ns*, the replies of the store as `LeaseGrant`. The caller asks
`begin` what can be decided here, sends what `request` and `due` return, and calls `granted` or
`lost` for every `GrantLease`, one of the two, once.

What keeps the bound, whatever is lost, late, repeated or paused:

- Units are used only before the lease expires, on the node's own clock from before its request.
- One request for a counter is in flight at a time; units that it returns as unused are gone at
  once.
- After a lost reply it is unknown if or when the store will carry the request out. So the node
  uses another holder name from then on: a late request touches only what was given up.
- A report of a postpaid lease says which units may be used until the reply comes (`unused`), and
  the next lease has at least as many: they are covered by the one before or by the next. A lost
  report is repeated under the name that it was made under, with all that may have been used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.observability import METRICS
from headgate.stores.layers.leases.denials import Denials, denial_of
from headgate.stores.layers.leases.lease import Bound, Demand, Lease, LeaseGroup
from headgate.stores.operations import Check, may_pass
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.algorithms import Outcome
    from headgate.limits import Limit
    from headgate.stores.base import Accuracies
    from headgate.stores.operations import GrantLease, LeaseGrant

DENIED: Final = METRICS.counter("denials_from_cache", "Requests denied without asking the store.")

MOST_LIMITS: Final = 64
"""Limits of one group that are remembered: policies change."""
MOST_LEASES: Final = 10_000
MOST_DUE: Final = 256
"""Requests that are due at a time."""
EARLY: Final = 4
"""Units that are left in the last quarter of a lease are returned."""


class Taken(NamedTuple):
    """Units that were taken from a lease, to put back if the rest is denied."""

    lease: Lease
    serial: int
    cost: int


@dataclass(slots=True)
class LocalTake:
    """The part of a take that was decided in this process."""

    outcomes: list[Outcome | None]
    """In the order of the checks; None: the store decides."""
    rest: tuple[Check, ...]
    taken: list[Taken]
    is_denied: bool

    def all_outcomes(self) -> tuple[Outcome, ...]:
        """The outcomes of a take of which nothing is left for the store."""
        return tuple([outcome for outcome in self.outcomes if outcome is not None])


class LeaseGroups:
    """The groups of leases, by name and limit, made when they are first used."""

    def __init__(self) -> None:
        self.accuracies: Accuracies = {}
        self.version: object = object()
        """Another object after each change that makes a group invalid."""
        self._by_name: dict[str, dict[Limit, LeaseGroup]] = {}
        # By the identity of the limit, which the group keeps alive: hashing one is slow.
        self._recent: dict[tuple[str, int], LeaseGroup] = {}
        self._numbers = 0

    def __iter__(self) -> Iterator[LeaseGroup]:
        for groups in list(self._by_name.values()):
            yield from list(groups.values())

    def named(self, name: str) -> list[LeaseGroup]:
        """All groups of that name: under different limits."""
        return list(self._by_name.get(name, {}).values())

    def find(self, name: str, limit: Limit) -> LeaseGroup | None:
        """The group under *limit*, if there is one."""
        found = self._recent.get((name, id(limit)))
        return found or self._by_name.get(name, {}).get(limit)

    def open(self, name: str, limit: Limit) -> tuple[LeaseGroup | None, LeaseGroup | None]:
        """The group under *limit*, None if it is exact; and one that was closed to make room."""
        group = self.find(name, limit)
        accuracy = self.accuracies.get(name)
        if group is not None or accuracy is None:
            return group, None
        groups = self._by_name.setdefault(name, {})
        closed = None
        if len(groups) >= MOST_LIMITS:
            closed = next(iter(groups.values()))
            self._remove(closed)
        group = groups[limit] = LeaseGroup(name, limit, accuracy)
        self._recent[name, id(limit)] = group
        self.number(group)
        return group, closed

    def number(self, group: LeaseGroup) -> None:
        """Give *group* a number that none had before."""
        self._numbers += 1
        group.number = self._numbers
        group.tag = f"{self._numbers}:{group.name}"

    def set_accuracies(self, accuracies: Accuracies) -> list[LeaseGroup]:
        """Set the accuracies; the groups that had another one, which are removed."""
        before, self.accuracies = self.accuracies, dict(accuracies)
        names = {*before, *accuracies}
        changed = [name for name in names if before.get(name) != accuracies.get(name)]
        removed = [group for name in changed for group in self.named(name)]
        for group in removed:
            self._remove(group)
        self.version = object()
        return removed

    def _remove(self, group: LeaseGroup) -> None:
        self._recent.pop((group.name, id(group.limit)), None)
        groups = self._by_name[group.name]
        del groups[group.limit]
        if not groups:
            del self._by_name[group.name]
        self.version = object()


_Entry = tuple[int, int, "LeaseGroup", str, "Lease", int]


class Schedule:
    """The leases by the time at which each is to be renewed, reported or returned.

    An entry is void if its lease was requested again since.
    """

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._count = 0
        self._evictions = 0

    @property
    def first_ns(self) -> int | None:
        """The time of the first entry; None: there is none."""
        if not self._heap:
            return None
        return 0 if self._evictions else self._heap[0][0]

    def add(self, due_ns: int, group: LeaseGroup, key: str, lease: Lease) -> None:
        self._count += 1
        heappush(self._heap, (due_ns, self._count, group, key, lease, lease.serial))

    def evict(self) -> None:
        """Have the first entry due now, to make room for another lease."""
        self._evictions += 1

    def pop(self, now_ns: int) -> tuple[LeaseGroup, str, Lease, bool] | None:
        """The next lease that is due, and True if it makes room for another; None: there is
        none."""
        while self._heap and (self._evictions or self._heap[0][0] <= now_ns):
            _, _, group, key, lease, serial = heappop(self._heap)
            if lease.serial == serial:
                is_evicted = self._evictions > 0
                self._evictions -= is_evicted
                return group, key, lease, is_evicted
        self._evictions = 0
        return None


REPEAT_NS: Final = 250 * MILLISECOND
"""The time after which a lost report is sent again."""
MOST_REPORTS: Final = 10_000

MOST_AT_ONCE: Final = 64
PAUSE_NS: Final = 25 * MILLISECOND
"""The time between two rounds of so many reports."""


class LostReports:
    """Reports of postpaid leases whose reply was lost.

    Each is repeated as it was: the store charges it once, however often it arrives. It is dropped
    when its limit would have forgotten the usage anyway.
    """

    def __init__(self) -> None:
        self._reports: dict[GrantLease, tuple[int, int]] = {}
        self.first_ns: int | None = None

    def __contains__(self, report: GrantLease) -> bool:
        return report in self._reports

    def add(self, request: GrantLease, now_ns: int, *, from_ns: int = 0) -> None:
        """Repeat the report in *request*, which was lost, from *from_ns* on."""
        cost_free = replace(request.check, cost=0)
        at_ns = max(now_ns + REPEAT_NS, from_ns)
        until_ns = max(now_ns, from_ns) + max(SECOND, request.check.limit.period_ns)
        if len(self._reports) >= MOST_REPORTS:
            del self._reports[next(iter(self._reports))]
        self._reports[replace(request, check=cost_free, most=0, unused=0)] = at_ns, until_ns
        self.first_ns = at_ns if self.first_ns is None else min(self.first_ns, at_ns)

    def confirm(self, report: GrantLease) -> bool:
        """Drop *report*, which has arrived; False if it is not one of these."""
        was_known = self._reports.pop(report, None) is not None
        if not self._reports:
            self.first_ns = None
        return was_known

    def due(self, now_ns: int) -> list[GrantLease]:
        """The reports to send now. Each is due again later unless it is confirmed.

        After an outage there may be thousands: they go out in rounds.
        """
        if self.first_ns is None or now_ns < self.first_ns:
            return []
        due: list[GrantLease] = []
        first_ns = now_ns + REPEAT_NS
        for report, (at_ns, until_ns) in list(self._reports.items()):
            if now_ns >= until_ns:
                del self._reports[report]
            elif now_ns < at_ns:
                first_ns = min(first_ns, at_ns)
            elif len(due) < MOST_AT_ONCE:
                due.append(report)
                self._reports[report] = now_ns + REPEAT_NS, until_ns
            else:
                first_ns = min(first_ns, now_ns + PAUSE_NS)
        self.first_ns = first_ns if self._reports else None
        return due

    def all(self) -> list[GrantLease]:
        """All of them."""
        return list(self._reports)


class LeaseTable:
    """The leases of one node, which the store knows as *holder*. Not safe among threads."""

    def __init__(self, holder: str, *, most_leases: int = MOST_LEASES) -> None:
        self.most_leases = most_leases
        self.groups = LeaseGroups()
        self.after_fork(holder)

    def after_fork(self, holder: str) -> None:
        """Forget all leases: they are those of the parent process."""
        self.groups.version = object()
        for group in self.groups:
            group.leases.clear()
            self.groups.number(group)
        self._holder = holder
        self._random = Random(holder)  # noqa: S311 (spreads exchanges over time, nothing more)
        self._names = 0
        self._reported = 0
        self._count = 0
        self.demand = Demand()
        self._schedule = Schedule()
        self._lost = LostReports()
        self._returns: list[GrantLease] = []
        self._later: dict[tuple[str, str], Check] = {}
        self._denials = Denials(self.most_leases)

    def set_accuracies(self, accuracies: Accuracies) -> None:
        """Set the accuracies of groups; leases of a changed one are due to be returned."""
        for group in self.groups.set_accuracies(accuracies):
            self._close(group)

    def manages(self, name: str) -> bool:
        """True if something can be decided here for the group *name*."""
        return name in self.groups.accuracies

    def group(self, name: str, limit: Limit) -> LeaseGroup | None:
        """The leases of the group *name* under *limit*; None if it is exact."""
        group, closed = self.groups.open(name, limit)
        if closed is not None:
            self._close(closed)
        return group

    # Takes.

    def decide(self, group: LeaseGroup, key: str, cost: int, now_ns: int) -> Outcome | None:
        """Take *cost* from a lease, or deny it; None, and nothing is done, if the store decides."""
        if cost <= 0:
            return None
        lease = group.leases.get(key)
        if lease is not None and cost <= lease.left and now_ns < lease.expires_ns:
            lease.left -= cost
            return group.outcome(lease, now_ns)
        outcome = self._denials.find(group.tag, key, cost, group.pace, now_ns)
        if outcome is None and lease is not None and now_ns < lease.dry_until_ns:
            denial = group.denial(lease, cost, now_ns)
            if denial is not None:
                self._denials.remember(group.tag, key, denial, now_ns)
                outcome = self._denials.find(group.tag, key, cost, group.pace, now_ns)
        if outcome is not None:
            DENIED.value += 1
        return outcome

    def serve(self, checks: Sequence[Check], now_ns: int) -> tuple[Outcome, ...] | None:
        """Take all *checks* if all fit, else none; None, and nothing is done, if the store has to
        decide one of them."""
        local = self.begin(checks, now_ns)
        if local.rest:
            self.put_back(local.taken)
            return None
        return local.all_outcomes()

    def begin(self, checks: Sequence[Check], now_ns: int) -> LocalTake:
        """Take what can be taken here. If anything is denied here, or by a limit of 0, nothing is
        taken."""
        outcomes: list[Outcome | None] = []
        rest: list[Check] = []
        taken: list[Taken] = []
        is_denied = False
        for check in checks:
            group = self.group(check.group, check.limit)
            outcome = None
            if group is not None:
                outcome = self.decide(group, check.key, check.cost, now_ns)
            if group is None or outcome is None:
                rest.append(check)
                is_denied = is_denied or not may_pass(check)
            elif outcome.allowed:
                lease = group.leases[check.key]
                taken.append(Taken(lease, lease.serial, check.cost))
            else:
                is_denied = True
            outcomes.append(outcome)
        if is_denied:
            self.put_back(taken)
            taken = []
        return LocalTake(outcomes, tuple(rest), taken, is_denied)

    def put_back(self, taken: Sequence[Taken]) -> None:
        """Undo what was taken, where the lease has not been requested again since."""
        for lease, serial, cost in taken:
            if lease.serial == serial:
                lease.left += cost

    def merge(
        self,
        local: LocalTake,
        checks: Sequence[Check],
        outcomes: Sequence[Outcome],
        sent_ns: int,
        now_ns: int,
    ) -> tuple[Outcome, ...]:
        """The outcomes of the whole take *local*, of which the store decided *checks*."""
        is_taken = all(outcome.allowed for outcome in outcomes)
        if not is_taken:
            self.put_back(local.taken)
        decided = [
            self.decided(check, outcome, sent_ns, now_ns)
            if is_taken or not outcome.allowed
            else outcome
            for check, outcome in zip(checks, outcomes, strict=True)
        ]
        if local.is_denied:
            return tuple(decided)
        from_store, taken = iter(decided), iter(local.taken)
        together: list[Outcome] = []
        for outcome in local.outcomes:
            if outcome is None:
                together.append(next(from_store))
                continue
            cost = 0 if is_taken else next(taken).cost
            together.append(outcome._replace(remaining=outcome.remaining + cost))
        return tuple(together)

    def decided(self, check: Check, outcome: Outcome, sent_ns: int, now_ns: int) -> Outcome:
        """Record the *outcome* of a check that the store decided; the outcome for the caller.

        A denial is remembered if the accuracy allows it. While the lease is dry this node denies,
        so the caller has to wait for that too.
        """
        group, lease = self._find(check)
        if group is None:
            return outcome
        if outcome.allowed:
            if check.cost:  # what was denied before has to wait longer now
                self._denials.forget(group.tag, check.key)
            return outcome
        wait_ns = outcome.retry_after_ns
        if lease is not None and wait_ns is not None and check.cost >= lease.dry_cost:
            wait_ns = max(wait_ns, lease.dry_until_ns - now_ns)
            outcome = outcome._replace(retry_after_ns=wait_ns)
        keep_ns = group.denials_ns
        if keep_ns:
            denial = denial_of(check.cost, outcome, check.limit, keep_ns, sent_ns, now_ns)
            self._denials.remember(group.tag, check.key, denial, now_ns)
        return outcome

    def invalidate(self, name: str, key: str) -> None:
        """Forget the denials of a counter that has changed in another way than by a take."""
        for group in self.groups.named(name):
            self._denials.forget(group.tag, key)
            lease = group.leases.get(key)
            if lease is not None:
                lease.dry_until_ns = 0

    def reset(self, name: str, key: str) -> None:
        """Forget all about a counter that was reset: its leases are gone."""
        for group in self.groups.named(name):
            self._denials.forget(group.tag, key)
            if key in group.leases:
                self._drop(group, key)
                self._names += 1

    # Requests for leases.

    def request(self, check: Check, now_ns: int, *, takes: bool = True) -> GrantLease | None:
        """The request for a lease for *check*, which `begin` left over; with *takes* it takes the
        check too.

        None: a lease is not worth it, or another request is in flight.
        """
        group, lease = self._find(check)
        if group is None:
            return None
        per_second = self.demand.of_check(group, check, lease, now_ns)
        units = group.units(lease, per_second, now_ns, check.cost if takes else 0)
        if lease is None:
            lease = self._new_lease(group, check) if units else None
        elif lease.pending is not None or (not units and not lease.has(1, now_ns)):
            lease = None
        if lease is None:
            return None
        return self._send(group, lease, check if takes else replace(check, cost=0), units, now_ns)

    def request_later(self, check: Check, now_ns: int) -> None:
        """Have `due` return a request for *check* if it is worth a lease."""
        group, lease = self._find(check)
        if group is None or check.cost <= 0 or len(self._later) >= MOST_DUE:
            return
        per_second = self.demand.of_check(group, check, lease, now_ns)
        if group.is_hot(per_second) and (lease is None or lease.pending is None):
            self._later[check.group, check.key] = replace(check, cost=0)

    def pending(self, check: Check) -> GrantLease | None:
        """The request in flight for the counter of *check*, if it is worth waiting for."""
        _, lease = self._find(check)
        request = None if lease is None else lease.pending
        return request if request is not None and request.most > 0 else None

    def _find(self, check: Check) -> tuple[LeaseGroup | None, Lease | None]:
        """The group of *check*, None if it is exact, and the lease of its counter."""
        group = self.group(check.group, check.limit)
        return group, None if group is None else group.leases.get(check.key)

    def granted(self, request: GrantLease, grant: LeaseGrant, sent_ns: int, now_ns: int) -> Outcome:
        """Record the reply to *request*, which was sent at *sent_ns*; the outcome of its check."""
        if self._lost.confirm(request):
            return grant.outcome
        group, lease = self._requester(request)
        if group is None or lease is None:
            self._return(request, grant)
            return grant.outcome
        check = request.check
        self.demand.heavy.add(check.group, check.key, self.demand.count_used(lease), now_ns)
        lease.grant(request, grant, sent_ns, now_ns)
        group.holders = max(1, grant.holders)
        if grant.amount:
            self._denials.forget(group.tag, check.key)
        outcome = self.decided(check, grant.outcome, sent_ns, now_ns)
        if request.most == 0 or (not grant.amount and now_ns >= lease.dry_until_ns):
            self._drop(group, check.key)
            return outcome
        due_ns = lease.expires_ns
        if grant.lasts_ns > group.life_ns // EARLY:  # else its window ends, and it cannot be used
            due_ns -= grant.lasts_ns // EARLY
        if group.sync_ns is not None:
            due_ns = sent_ns + int(group.sync_ns * self._random.uniform(0.8, 1.0))
        if not grant.amount:
            due_ns = lease.dry_until_ns + group.life_ns
        self._schedule.add(due_ns, group, check.key, lease)
        return outcome

    def lost(self, request: GrantLease, now_ns: int) -> None:
        """Record that the reply to *request* is lost: it is unknown if the store carries it out."""
        self._names += 1
        if request in self._lost:
            return
        group, lease = self._requester(request)
        is_left = lease is not None and lease.has(1, now_ns)
        kept = 0 if request.is_charged else request.unused
        if lease is not None and not is_left:
            kept -= lease.left
        report = replace(request, used=request.used + kept)
        if report.used > report.reported:
            # A report ends the lease, which has to count while its units may be used.
            from_ns = lease.expires_ns if lease is not None and is_left else 0
            self._lost.add(report, now_ns, from_ns=from_ns)
        if group is None or lease is None:
            return
        key = request.check.key
        if not is_left:
            self._drop(group, key)
            return
        # A postpaid lease: the units that were kept may be used, and are reported as used.
        left = replace(
            lease,
            holder=self._new_name(group),
            reported=self._reported,
            carried=lease.left,
            granted=lease.left,
            counted=lease.left,
            others_leave=None,
            pending=None,
            dry_until_ns=0,
        )
        group.leases[key] = left
        self._schedule.add(left.expires_ns, group, key, left)

    # Upkeep.

    def due(self, now_ns: int, *, most: int = MOST_DUE) -> list[GrantLease]:
        """The requests to send now: returns, reports, renewals, and leases to request later."""
        requests = self._returns[:most]
        del self._returns[:most]
        requests += self._lost.due(now_ns)
        while self._later and len(requests) < most:
            request = self.request(self._later.popitem()[1], now_ns, takes=False)
            if request is not None:
                requests.append(request)
        while len(requests) < most:
            found = self._schedule.pop(now_ns)
            if found is None:
                break
            group, key, lease, is_evicted = found
            if group.leases.get(key) is lease and lease.pending is None:
                request = self._upkeep(group, key, lease, now_ns, renews=not is_evicted)
                if request is not None:
                    requests.append(request)
        return requests

    def next_due_ns(self) -> int | None:
        """The time at which `due` has something to send; None: never, by now."""
        times = [
            self._schedule.first_ns,
            self._lost.first_ns,
            0 if self._returns or self._later else None,
        ]
        return min((time for time in times if time is not None), default=None)

    def close(self, now_ns: int) -> list[GrantLease]:
        """End all leases; the returns and reports to send at the end."""
        for group in self.groups.set_accuracies({}):
            self._close(group, now_ns)
        requests = self._returns + self._lost.all()
        self._returns = []
        self._later.clear()
        return requests

    def __len__(self) -> int:
        """The number of leases, requested ones included."""
        return self._count

    def units_held(self) -> int:
        """The units of all leases that are not used, expired or not."""
        return sum(lease.left for group in self.groups for lease in list(group.leases.values()))

    def bounds(self) -> list[Bound]:
        """The overshoot of each group that has leases."""
        return [group.bound() for group in self.groups if group.is_leased]

    def _new_lease(self, group: LeaseGroup, check: Check) -> Lease | None:
        if self._count >= self.most_leases:
            self._schedule.evict()
            return None
        self._count += 1
        lease = Lease(self._new_name(group), self._reported, group.holders)
        group.leases[check.key] = lease
        return lease

    def _send(
        self, group: LeaseGroup, lease: Lease, check: Check, units: int, now_ns: int, keeps: int = 0
    ) -> GrantLease:
        """Request *units* besides *check*."""
        if group.is_split and group.is_prepaid and not lease.has(1, now_ns):
            self._names += 1  # nothing goes back, so another sub-counter may grant the next lease
            lease.holder = self._new_name(group)
        request = lease.request(group, check, units, now_ns, keeps)
        self._reported = max(self._reported, request.used + units)
        return request

    def _upkeep(
        self, group: LeaseGroup, key: str, lease: Lease, now_ns: int, *, renews: bool
    ) -> GrantLease | None:
        """The request that *lease* needs, which is due. One that was used is renewed."""
        used = self.demand.count_used(lease)
        per_second = self.demand.heavy.add(group.name, key, used, now_ns)
        is_reported = group.is_prepaid or (not used and lease.used == lease.reported)
        if is_reported and not lease.has(1, now_ns):
            self._drop(group, key)
            return None
        units = 0
        if used and renews:
            units = group.units(lease, per_second, now_ns)
        check = Check(group.name, key, group.limit, 0)
        keeps = group.units_in_exchange(per_second)
        return self._send(group, lease, check, units, now_ns, keeps)

    def _return(self, request: GrantLease, grant: LeaseGrant) -> None:
        """Return a lease that is not needed any more: its group was changed or its key reset."""
        if grant.amount:
            check = replace(request.check, cost=0)
            reported = max(request.used, request.reported)
            # Units of a postpaid lease may have been used while the request was in flight.
            unused, used = (grant.amount, 0) if request.is_charged else (0, request.unused)
            used += reported
            self._returns.append(
                replace(request, check=check, most=0, unused=unused, used=used, reported=reported)
            )

    def _requester(self, request: GrantLease) -> tuple[LeaseGroup | None, Lease | None]:
        """The lease that waits for the reply to *request*, if there still is one."""
        group = self.groups.find(request.check.group, request.check.limit)
        lease = None if group is None else group.leases.get(request.check.key)
        if lease is None or lease.pending is not request:
            return None, None
        return group, lease

    def _drop(self, group: LeaseGroup, key: str) -> None:
        del group.leases[key]
        self._count -= 1

    def _close(self, group: LeaseGroup, now_ns: int | None = None) -> None:
        """Return all leases of *group*, which was removed."""
        for key, lease in list(group.leases.items()):
            if lease.pending is None and (lease.left or lease.used > lease.reported):
                check = Check(group.name, key, group.limit, 0)
                at_ns = lease.sent_ns if now_ns is None else now_ns
                self._returns.append(self._send(group, lease, check, 0, at_ns))
            lease.left = 0
            self._drop(group, key)

    def _new_name(self, group: LeaseGroup) -> str:
        return f"{self._holder}.{group.number}.{self._names}"
