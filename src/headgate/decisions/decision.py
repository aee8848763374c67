"""What came of a check.

A `Decision` is a value: true when allowed, never raised, never changed. All its figures come from
the one round trip that decided it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.units import seconds_at_least

if TYPE_CHECKING:
    from headgate.limits import Limit

Figures = tuple[bool, str, "Limit", int, "int | None", int, str, tuple["Decision", ...]]
"""Of a decision: `allowed`, `key`, `limit`, `remaining`, `retry_after_ns`, `reset_after_ns`,
`source`, and `limits` if there are several, else nothing."""


class Decision:
    """What came of a check: true when allowed.

    Subclasses differ only in when the figures are computed; callers need not know them. (It is not
    an ABC because instances of one are dearer to make, and these are made by the million.)
    """

    __slots__ = ()

    @property
    def allowed(self) -> bool:
        """Whether the request may go on."""
        raise NotImplementedError

    @property
    def key(self) -> str:
        """Whose counter it was."""
        raise NotImplementedError

    @property
    def limit(self) -> Limit:
        """The limit that decided: of several, the one that binds most."""
        raise NotImplementedError

    @property
    def remaining(self) -> int:
        """The largest cost that would be allowed right after this check."""
        raise NotImplementedError

    @property
    def retry_after_ns(self) -> int | None:
        """`retry_after` in nanoseconds."""
        raise NotImplementedError

    @property
    def reset_after_ns(self) -> int:
        """`reset_after` in nanoseconds."""
        raise NotImplementedError

    @property
    def delay_ns(self) -> int:
        """`delay` in nanoseconds."""
        return 0

    @property
    def turn_ns(self) -> int:
        """When the turn of a request that is delayed comes, on the clock of the store; else 0."""
        return 0

    @property
    def source(self) -> str:
        """Who decided: `store`, or what stood in for it."""
        return "store"

    @property
    def limits(self) -> tuple[Decision, ...]:
        """What each of the stacked limits said; of a single one, this decision."""
        return (self,)

    @property
    def retry_after(self) -> float | None:
        """Seconds until the same request would be allowed; 0.0 if it was, None if never."""
        nanoseconds = self.retry_after_ns
        return None if nanoseconds is None else seconds_at_least(nanoseconds)

    @property
    def delay(self) -> float:
        """Seconds that an allowed request is to wait for its turn: 0.0 where there is no queue."""
        return seconds_at_least(self.delay_ns)

    @property
    def reset_after(self) -> float:
        """Seconds until the counter is as if untouched."""
        return seconds_at_least(self.reset_after_ns)

    def __bool__(self) -> bool:
        return self.allowed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Decision):
            return NotImplemented
        return self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        delay = f"delay={self.delay}, " if self.delay_ns else ""
        return (
            f"Decision(allowed={self.allowed}, key={self.key!r}, limit='{self.limit}', "
            f"remaining={self.remaining}, retry_after={self.retry_after}, "
            f"reset_after={self.reset_after}, {delay}source={self.source!r})"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, self._all()

    def figures(self) -> Figures:
        """All there is to read where there is no queue, in one call: see `Figures`."""
        parts = self.limits
        return (
            self.allowed,
            self.key,
            self.limit,
            self.remaining,
            self.retry_after_ns,
            self.reset_after_ns,
            self.source,
            parts if len(parts) > 1 else (),
        )

    def _all(self) -> tuple[Figures, int, int]:
        """The figures, the delay and the turn."""
        return self.figures(), self.delay_ns, self.turn_ns


class Concluded(Decision):
    """A decision whose figures are known."""

    __slots__ = (
        "_allowed",
        "_delay_ns",
        "_key",
        "_limit",
        "_parts",
        "_remaining",
        "_reset_after_ns",
        "_retry_after_ns",
        "_source",
        "_turn_ns",
    )

    def __init__(
        self,
        key: str,
        limit: Limit,
        *,
        allowed: bool,
        remaining: int,
        retry_after_ns: int | None,
        reset_after_ns: int,
        source: str = "store",
        parts: tuple[Decision, ...] = (),
        delay_ns: int = 0,
        turn_ns: int = 0,
    ) -> None:
        self._key = key
        self._limit = limit
        self._allowed = allowed
        self._remaining = remaining
        self._retry_after_ns = retry_after_ns
        self._reset_after_ns = reset_after_ns
        self._source = source
        self._parts = parts
        self._delay_ns = delay_ns
        self._turn_ns = turn_ns

    @property
    def allowed(self) -> bool:
        return self._allowed

    @property
    def key(self) -> str:
        return self._key

    @property
    def limit(self) -> Limit:
        return self._limit

    @property
    def remaining(self) -> int:
        return self._remaining

    @property
    def retry_after_ns(self) -> int | None:
        return self._retry_after_ns

    @property
    def reset_after_ns(self) -> int:
        return self._reset_after_ns

    @property
    def delay_ns(self) -> int:
        return self._delay_ns

    @property
    def turn_ns(self) -> int:
        return self._turn_ns

    @property
    def source(self) -> str:
        return self._source

    @property
    def limits(self) -> tuple[Decision, ...]:
        return self._parts or (self,)


def _restored(figures: Figures, delay_ns: int, turn_ns: int) -> Decision:
    """A decision that was pickled or copied, with its figures computed."""
    allowed, key, limit, remaining, retry_after_ns, reset_after_ns, source, parts = figures
    return Concluded(
        key,
        limit,
        allowed=allowed,
        remaining=remaining,
        retry_after_ns=retry_after_ns,
        reset_after_ns=reset_after_ns,
        source=source,
        parts=parts,
        delay_ns=delay_ns,
        turn_ns=turn_ns,
    )
