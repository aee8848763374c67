"""Concurrency: a number of slots, each held on a lease.

The state is the set of leases and when each expires. A slot is free again when its holder releases
it or when its lease has expired, whichever comes first, so a crashed holder heals by itself. Time
alone frees nothing before that: `wait` says when the next leases expire if no slot is released
earlier.

Some of the slots may be guaranteed to parts of the callers: their shares. Of the `limit`, `used`
slots are taken, `own` of them by the part of the caller.

- A part that has less than its share gets any free slot. Beyond its share, or without one, it
  borrows a slot.
- If the limit does not lend, only slots that no share guarantees can be borrowed: the sum over all
  parts, of what each has or is guaranteed, whichever is more, must leave room. So a guaranteed slot
  is available at once, and may lie idle.
- If the limit lends, idle guaranteed slots can be borrowed too, so a part may find its share used
  by others. It is denied then, and the denial is a claim: for `CLAIM_NS`, renewed by each further
  denial, borrowers leave as many slots free as were denied, but no more than the part lacks.
- A slot that a part releases while it has no more than its share is kept for it by all others for
  `KEEP_NS`. A busy part takes its next slot within that time, and so keeps its share whatever the
  others do; idle slots are borrowed afterwards. A new lease uses the slot that was kept last. So
  what a part has and what is kept for it are together the most that it had in the last `KEEP_NS`. A
  lease that expires keeps nothing.

Together, with `free = limit - used`,

    room = max(min(free, share - own), free - lacking)                      if it does not lend
    room = max(min(free - kept, share - own), free - kept - claimed)        if it does

where `lacking` is what the others lack of their shares, `kept` is kept for them, and `claimed` is
what they claim. Room never shrinks by time alone: a lease that expires adds one to `free` and at
most one to `lacking`. So `wait` looks through the instants at which something expires for the
first that has room. (If all callers have the same limit, never more slots are kept than are free.)

Slots are kept or claimed under a limit. A caller with a larger limit on the same counter, because
it has a higher priority, need not leave them free: the slots above the smaller limit are of no use
to the part that waits.

Clock: a lease that expires later than its own TTL from now was taken before the clock stepped back,
and expires one TTL from now. So do claims and kept slots, whose lifetimes are constants.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.algorithms.base import Algorithm, Outcome
from headgate.errors import UsageError
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.limits import Concurrency


# The state of a concurrency limit: the leases, and the free slots that are left for a part.
#
# Questions change nothing. What has expired is removed when a slot is taken or renewed; until then
# it is passed over, so that a clock that steps back finds it again.


_NEVER: Final = 1 << 80


class Lease(NamedTuple):
    """A slot that is held: until when, by which part of the callers, and its TTL (0: not known)."""

    ends_ns: int
    part: str | None
    lasts_ns: int = 0


class Claim(NamedTuple):
    """Free slots that are a part's until *until_ns*: they were denied to it although it had less
    than its share, or it released them just now.

    They are left to it by all callers whose limit is no larger than its own was.
    """

    units: int
    until_ns: int
    limit: int


@dataclass(slots=True)
class Slots:
    """The leases by name, and by part its claim, and what is kept for it, the first to end first.

    *high* is the time of the last lease, if it is known. The owner of one may change it.
    """

    leases: dict[str, Lease] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    kept: dict[str, tuple[Claim, ...]] = field(default_factory=dict)
    high: int | None = field(default=None, compare=False)
    _counts: dict[str | None, int] = field(init=False, compare=False, repr=False)
    """Leases by part, expired ones included."""
    _soonest: int = field(init=False, compare=False, repr=False)
    """No lease expires before this."""

    def __post_init__(self) -> None:
        self._recount()

    def _recount(self) -> None:
        self._counts = dict(Counter(lease.part for lease in self.leases.values()))
        self._soonest = min((lease.ends_ns for lease in self.leases.values()), default=_NEVER)

    def rebased(self, now: int) -> Slots:
        """Return these slots with nothing that ends later than it could from *now* on."""
        if self.high is not None and now >= self.high:
            return self
        leases = {
            name: lease._replace(ends_ns=now + lease.lasts_ns)
            for name, lease in self.leases.items()
            if 0 < lease.lasts_ns < lease.ends_ns - now
        }
        claim_end, kept_end = now + CLAIM_NS, _kept_until(now)
        claims = {part: _ending(claim, claim_end) for part, claim in self.claims.items()}
        kept = {
            part: tuple([_ending(claim, kept_end) for claim in each])
            for part, each in self.kept.items()
        }
        if not leases and claims == self.claims and kept == self.kept:
            return self
        return Slots({**self.leases, **leases}, claims, kept, now)

    def has(self, name: str, now: int) -> bool:
        """Return True if the lease *name* has not expired."""
        lease = self.leases.get(name)
        return lease is not None and lease.ends_ns > now

    def used(self, now: int) -> int:
        """Return how many leases have not expired."""
        return sum(self.used_by_part(now).values())

    def used_by_part(self, now: int) -> Mapping[str | None, int]:
        """Return the same by part, not to be changed; parts with none may be missing."""
        if now < self._soonest:
            return self._counts
        return Counter(lease.part for lease in self.leases.values() if lease.ends_ns > now)

    def claimed_by(self, part: str, now: int, limit: int = 0) -> int:
        """Return how many slots *part* claims from callers under *limit*."""
        claim = self.claims.get(part)
        return 0 if claim is None else _units(claim, now, limit)

    def kept_for(self, part: str, now: int, limit: int = 0) -> int:
        """Return how many slots are kept for *part* from callers under *limit*."""
        return sum([_units(claim, now, limit) for claim in self.kept.get(part, ())])

    def leases_end(self, now: int) -> int:
        """Return when all leases have expired; *now* if they have."""
        return max([now, *(lease.ends_ns for lease in self.leases.values())])

    def claims_end(self) -> list[int]:
        """Return when each of the claims expires, and all that is kept."""
        claims = [self.claims.values(), *self.kept.values()]
        return [claim.until_ns for each in claims for claim in each]

    def put(self, name: str, lease: Lease, now: int) -> None:
        """Keep *lease* by its name, and nothing that has expired."""
        self._tidy(now)
        self.high = now
        self.pop(name)
        self.leases[name] = lease
        self._counts[lease.part] = self._counts.get(lease.part, 0) + 1
        self._soonest = min(self._soonest, lease.ends_ns)

    def pop(self, name: str) -> Lease | None:
        """Remove and return the lease *name*, if there is one."""
        lease = self.leases.pop(name, None)
        if lease is not None:
            self._counts[lease.part] -= 1
        return lease

    def keep(self, part: str, more: Claim, now: int) -> None:
        """Keep *more* for *part*."""
        groups = []
        for claim in self.kept.get(part, ()):
            if claim.until_ns == more.until_ns:
                more = Claim(claim.units + more.units, claim.until_ns, max(claim.limit, more.limit))
            elif claim.until_ns > now:
                groups.append(claim)
        self.kept[part] = tuple(sorted([*groups, more], key=lambda claim: claim.until_ns))

    def use(self, part: str) -> None:
        """Keep one slot less for *part*, the last that was kept; or else lower its claim.

        What has expired is removed already.
        """
        groups = self.kept.pop(part, ())
        if groups:
            groups = groups[:-1] + _less(groups[-1])
            if groups:
                self.kept[part] = groups
            return
        claim = self.claims.pop(part, None)
        for rest in () if claim is None else _less(claim):
            self.claims[part] = rest

    def _tidy(self, now: int) -> None:
        """Remove what has expired."""
        if self.claims:
            self.claims = {part: one for part, one in self.claims.items() if one.until_ns > now}
        if self.kept:
            live = {
                part: tuple([claim for claim in claims if claim.until_ns > now])
                for part, claims in self.kept.items()
            }
            self.kept = {part: claims for part, claims in live.items() if claims}
        if now >= self._soonest:
            self.leases = {name: one for name, one in self.leases.items() if one.ends_ns > now}
            self._recount()


def _units(claim: Claim, now: int, limit: int) -> int:
    return claim.units if claim.until_ns > now and claim.limit >= limit else 0


def _less(claim: Claim) -> tuple[Claim, ...]:
    """Return what is left of *claim* when a slot was taken."""
    return (claim._replace(units=claim.units - 1),) if claim.units > 1 else ()


def _ending(claim: Claim, latest: int) -> Claim:
    return claim._replace(until_ns=latest) if claim.until_ns > latest else claim


def _kept_until(now: int) -> int:
    return -(-(now + KEEP_NS) // GRAIN_NS) * GRAIN_NS


CLAIM_NS: Final = SECOND
"""The time for which released slots are left to a part that was denied one of its own."""
KEEP_NS: Final = SECOND // 4
"""The least time for which a slot is kept for the part that released it."""
GRAIN_NS: Final = KEEP_NS // 4
"""A slot is kept until the next multiple of this, so that what is kept has few instants."""


class ConcurrencyAlgorithm(Algorithm[Slots]):
    """The arithmetic of `Concurrency(limit, ttl, shares, partition, lends)`."""

    __slots__ = ("claims", "lends", "most", "others", "part", "share", "ttl_ns")

    def __init__(self, limit: Concurrency) -> None:
        super().__init__(limit)
        self.ttl_ns = limit.ttl_ns
        self.part = limit.partition
        self.share = dict(limit.shares).get(limit.partition or "", 0)
        self.others = tuple((name, slots) for name, slots in limit.shares if name != self.part)
        self.lends = limit.lends
        self.claims = limit.lends and self.share > 0
        """True if slots are kept for this part, and left to it when they were denied."""
        guaranteed = sum(slots for _, slots in self.others)
        self.most = self.quota if limit.lends else self.quota - guaranteed
        """The most that an unused counter has for this part."""

    def rebase(self, state: Slots, now: int) -> Slots:
        return state.rebased(now)

    def enter(self, state: Slots | None, lease: str, now: int) -> Slots:
        """Take the slot of *lease*; what is kept for the part, or it claims, is one less."""
        state = Slots(high=now) if state is None else state.rebased(now)
        is_new = not state.has(lease, now)
        state.put(lease, Lease(now + self.ttl_ns, self.part, self.ttl_ns), now)
        if is_new and self.part is not None:
            state.use(self.part)
        return state

    def renew(self, state: Slots, lease: str, now: int) -> Slots:
        """Renew *lease* if it has not expired; it stays with its part, whichever renews it."""
        state = state.rebased(now)
        if state.has(lease, now):
            part = state.leases[lease].part
            state.put(lease, Lease(now + self.ttl_ns, part, self.ttl_ns), now)
        return state

    def leave(self, state: Slots | None, lease: str, now: int) -> Slots | None:
        """Release the slot of *lease*.

        It is kept for its part if that has no more than its share.
        """
        if state is None:
            return None
        state = state.rebased(now)
        was_held, part = state.has(lease, now), self.part
        old = state.pop(lease)
        if was_held and old and self.claims and part is not None and old.part == part:
            expected = state.kept_for(part, now) + state.claimed_by(part, now)
            if expected < self.share - state.used_by_part(now).get(part, 0):
                state.keep(part, Claim(1, _kept_until(now), self.quota), now)
        return state if state.leases or state.claims or state.kept else None

    def deny(self, state: Slots | None, cost: int, now: int) -> Slots | None:
        """Record that *cost* did not fit, if slots were denied that the part is guaranteed."""
        part = self.part
        if state is None or part is None or not self.claims or cost > self.most:
            return state
        state = state.rebased(now)
        missing = self.share - state.used_by_part(now).get(part, 0)
        lacking = min(cost, missing)
        if lacking <= self.remaining(state, now):
            return state
        units = min(state.claimed_by(part, now) + lacking, missing - state.kept_for(part, now))
        if units > 0:
            old = state.claims.get(part)
            limit = old.limit if old is not None and old.until_ns > now else 0
            state.claims[part] = Claim(units, now + CLAIM_NS, max(limit, self.quota))
        return state

    def holds(self, state: Slots | None, lease: str, now: int) -> bool:
        """Return True if *lease* still has its slot."""
        return state is not None and state.has(lease, now)

    def wait(self, state: Slots | None, cost: int, now: int) -> int | None:
        if cost > self.most:
            return None
        if state is None or cost <= self.remaining(state, now):
            return 0
        state = state.rebased(now)
        if not self.share and not self.others:
            ends = [lease.ends_ns for lease in state.leases.values() if lease.ends_ns > now]
            return nsmallest(len(ends) + cost - self.quota, ends)[-1] - now
        return self._room_at(state, cost, now) - now

    def charge(self, state: Slots | None, amount: int, now: int) -> Slots:
        raise UsageError("a slot has to be released: use slot(key), not hit, reserve or charge")

    def refund(self, state: Slots, amount: int, now: int) -> Slots:
        raise UsageError("a slot is released by leaving it, not by a refund")

    def remaining(self, state: Slots | None, now: int) -> int:
        if state is None:
            return self.most
        state = state.rebased(now)
        return self._room(state, state.used_by_part(now), now)

    def fresh_in(self, state: Slots | None, now: int) -> int:
        if state is None:
            return 0
        state = state.rebased(now)
        return max([state.leases_end(now), *state.claims_end()]) - now

    def used(self, state: Slots | None, now: int) -> int:
        return 0 if state is None else state.used(now)

    def adopt(self, state: Slots, old: Algorithm[Slots], now: int) -> Slots | None:
        return state if isinstance(old, ConcurrencyAlgorithm) else None

    def outcome(self, state: Slots | None, wait: int | None, now: int) -> Outcome:
        """Return the figures; without shares those of the leases alone."""
        if state is None or self.share or self.others:
            return super().outcome(state, wait, now)
        reset = state.rebased(now).leases_end(now) - now
        return Outcome(wait == 0, self.remaining(state, now), wait, reset)

    def _room(self, state: Slots, by_part: Mapping[str | None, int], now: int) -> int:
        """Return what this part could take at *now*, if so much is used *by_part*."""
        free = self.quota - sum(by_part.values())
        if free <= 0:
            return 0
        lacking = self.share - by_part.get(self.part, 0) if self.share else 0
        if not self.lends:
            others = sum([max(0, slots - by_part.get(name, 0)) for name, slots in self.others])
            return max(0, min(free, lacking), free - others)
        claimed = 0
        if state.claims or state.kept:
            for name, _ in self.others:
                free -= state.kept_for(name, now, self.quota)
                claimed += state.claimed_by(name, now, self.quota)
        return max(0, min(free, lacking), free - claimed)

    def _room_at(self, state: Slots, cost: int, now: int) -> int:
        """Return the first instant after *now* that has room for *cost*."""
        by_part = dict(state.used_by_part(now))
        leases = [(lease.ends_ns, 1, lease.part) for lease in state.leases.values()]
        events = leases + [(end, 0, None) for end in state.claims_end()]
        for at, slots, part in sorted(events, key=lambda event: event[0]):
            if at > now:
                by_part[part] = by_part.get(part, 0) - slots
                if self._room(state, by_part, at) >= cost:
                    return at
        raise AssertionError(f"no room for {cost} even when all has expired")
