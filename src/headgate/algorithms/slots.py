"""The state of a concurrency limit: who has a slot until when, and who was refused one of its own.

Questions change nothing. What has run out is thrown away when a slot is taken or renewed; until
then it is passed over, so that a clock that steps back finds it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_NEVER: Final = 1 << 80


class Lease(NamedTuple):
    """A slot that is held: until when, and by which part of the callers."""

    ends_ns: int
    part: str | None


class Claim(NamedTuple):
    """Slots that a part was refused although it had less than its share.

    Slots that come back are left to it until *until_ns*, by all that asked under no larger limit
    than it had itself.
    """

    units: int
    until_ns: int
    limit: int


class Slots:
    """The leases by name, and the claims by part. Whoever has one may change it."""

    __slots__ = ("_counts", "_soonest", "claims", "leases")

    def __init__(
        self, leases: Mapping[str, Lease] | None = None, claims: Mapping[str, Claim] | None = None
    ) -> None:
        self.leases: dict[str, Lease] = {}
        self.claims: dict[str, Claim] = dict(claims or {})
        self._counts: dict[str | None, int] = {}
        self._soonest = _NEVER
        for name, lease in (leases or {}).items():
            self._add(name, lease)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Slots):
            return NotImplemented
        return self.leases == other.leases and self.claims == other.claims

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"Slots({self.leases!r}, {self.claims!r})"

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in it, not even what has run out."""
        return not self.leases and not self.claims

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

    def ends(self, now: int) -> int:
        """When all of it has run out; *now* if it has."""
        last = max((lease.ends_ns for lease in self.leases.values()), default=now)
        return max(now, last, *(claim.until_ns for claim in self.claims.values()))

    def put(self, name: str, lease: Lease, now: int) -> None:
        """Keep *lease* by its name, and nothing that has run out."""
        self._tidy(now)
        self.pop(name)
        self._add(name, lease)

    def pop(self, name: str) -> None:
        """Forget the lease *name*, if there is one."""
        lease = self.leases.pop(name, None)
        if lease is not None:
            self._counts[lease.part] -= 1

    def _add(self, name: str, lease: Lease) -> None:
        self.leases[name] = lease
        self._counts[lease.part] = self._counts.get(lease.part, 0) + 1
        self._soonest = min(self._soonest, lease.ends_ns)

    def _tidy(self, now: int) -> None:
        if self.claims:
            live = {part: claim for part, claim in self.claims.items() if claim.until_ns > now}
            self.claims = live
        if now < self._soonest:
            return
        for name in [name for name, lease in self.leases.items() if lease.ends_ns <= now]:
            self.pop(name)
        self._counts = {part: count for part, count in self._counts.items() if count}
        self._soonest = min((lease.ends_ns for lease in self.leases.values()), default=_NEVER)
