"""The state of a concurrency limit: who has a slot until when, and for whom free ones are left.

Questions change nothing. What has run out is thrown away when a slot is taken or renewed; until
then it is passed over, so that a clock that steps back finds it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NEVER: Final = 1 << 80


class Lease(NamedTuple):
    """A slot that is held: until when, and by which part of the callers."""

    ends_ns: int
    part: str | None


class Claim(NamedTuple):
    """Free slots that are a part's until *until_ns*: it was refused them although it had less than
    its share, or had them just now.

    They are left to it by all that ask under no larger limit than it had itself.
    """

    units: int
    until_ns: int
    limit: int


class Slots:
    """The leases by name, and by part what it claims, and what is kept for it: the sooner that
    ends, the further in front. Whoever has one may change it."""

    __slots__ = ("_counts", "_soonest", "claims", "kept", "leases")

    def __init__(
        self,
        leases: Mapping[str, Lease] | None = None,
        claims: Mapping[str, Claim] | None = None,
        kept: Mapping[str, tuple[Claim, ...]] | None = None,
    ) -> None:
        self.leases: dict[str, Lease] = {}
        self.claims: dict[str, Claim] = dict(claims or {})
        self.kept: dict[str, tuple[Claim, ...]] = dict(kept or {})
        self._counts: dict[str | None, int] = {}
        self._soonest = _NEVER
        for name, lease in (leases or {}).items():
            self._add(name, lease)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Slots):
            return NotImplemented
        mine, others = ((one.leases, one.claims, one.kept) for one in (self, other))
        return mine == others

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"Slots({self.leases!r}, {self.claims!r}, {self.kept!r})"

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in it, not even what has run out."""
        return not self.leases and not self.claims and not self.kept

    def has(self, name: str, now: int) -> bool:
        """Whether the lease *name* is running."""
        lease = self.leases.get(name)
        return lease is not None and lease.ends_ns > now

    def used(self, now: int) -> int:
        """How many leases are running."""
        if now < self._soonest:
            return len(self.leases)
        return sum(lease.ends_ns > now for lease in self.leases.values())

    def used_by_part(self, now: int) -> Mapping[str | None, int]:
        """The same by part; parts with none may be left out. Not to be changed."""
        if now < self._soonest:
            return self._counts
        counts: dict[str | None, int] = {}
        for lease in self.leases.values():
            if lease.ends_ns > now:
                counts[lease.part] = counts.get(lease.part, 0) + 1
        return counts

    def claimed_by(self, part: str, now: int, limit: int = 0) -> int:
        """How many slots *part* claims, of those who ask under *limit*."""
        claim = self.claims.get(part)
        return 0 if claim is None else _units(claim, now, limit)

    def kept_for(self, part: str, now: int, limit: int = 0) -> int:
        """How many slots are kept for *part*, by those who ask under *limit*."""
        return sum([_units(claim, now, limit) for claim in self.kept.get(part, ())])

    def leases_end(self, now: int) -> int:
        """When all leases have run out; *now* if they have."""
        return max([now, *(lease.ends_ns for lease in self.leases.values())])

    def ends(self, now: int) -> int:
        """When all of it has run out; *now* if it has."""
        return max([self.leases_end(now), *self.claims_end()])

    def claims_end(self) -> Iterator[int]:
        """When each of the claims has run out, and all that is kept."""
        yield from (claim.until_ns for claim in self.claims.values())
        yield from (claim.until_ns for claims in self.kept.values() for claim in claims)

    def put(self, name: str, lease: Lease, now: int) -> None:
        """Keep *lease* by its name, and nothing that has run out."""
        self._tidy(now)
        self.pop(name)
        self._add(name, lease)

    def pop(self, name: str) -> Lease | None:
        """Forget the lease *name*; what it was, if there is one."""
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
        """One slot less is kept for *part*, the last that was; or else claimed by it. (What has run
        out is thrown away already.)"""
        groups = self.kept.pop(part, ())
        if groups:
            groups = groups[:-1] + _less(groups[-1])
            if groups:
                self.kept[part] = groups
            return
        claim = self.claims.pop(part, None)
        for rest in () if claim is None else _less(claim):
            self.claims[part] = rest

    def _add(self, name: str, lease: Lease) -> None:
        self.leases[name] = lease
        self._counts[lease.part] = self._counts.get(lease.part, 0) + 1
        self._soonest = min(self._soonest, lease.ends_ns)

    def _tidy(self, now: int) -> None:
        if self.claims:
            live = {part: claim for part, claim in self.claims.items() if claim.until_ns > now}
            self.claims = live
        if self.kept:
            self.kept = {
                part: groups
                for part, claims in self.kept.items()
                if (groups := tuple([claim for claim in claims if claim.until_ns > now]))
            }
        if now < self._soonest:
            return
        for name in [name for name, lease in self.leases.items() if lease.ends_ns <= now]:
            self.pop(name)
        self._counts = {part: count for part, count in self._counts.items() if count}
        self._soonest = min((lease.ends_ns for lease in self.leases.values()), default=_NEVER)


def _units(claim: Claim, now: int, limit: int) -> int:
    return claim.units if claim.until_ns > now and claim.limit >= limit else 0


def _less(claim: Claim) -> tuple[Claim, ...]:
    """What is left of *claim* when a slot was taken."""
    return (claim._replace(units=claim.units - 1),) if claim.units > 1 else ()
