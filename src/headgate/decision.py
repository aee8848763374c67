"""The decision on a check.

A `Decision` is a value: true when allowed, never raised, never changed. All its figures come from
the one round trip that decided it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from headgate.errors import HeadgateError, OptionError
from headgate.limits import Concurrency
from headgate.units import EXACT_AS_FLOAT, SECOND, seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headgate.algorithms import Outcome
    from headgate.limits import Limit

Taken = tuple[object, "int | None", int, int]
"""The result of one limit: its state, `retry_after_ns`, `remaining`, `reset_after_ns`."""

Parts = (
    tuple["Decision", ...]
    | tuple[tuple["Limit", ...], tuple["Outcome", ...]]
    | tuple[tuple["Limit", ...], list[Taken]]
)
"""The decisions of several limits; before they are read, the limits and what came of each."""


class Decision(NamedTuple):
    """The answer to a check: true when allowed.

    (A named tuple: one is made for every request, and a class with as many attributes takes three
    times as long to make.)
    """

    key: str
    limit: Limit
    """The limit that decided: of several the one that binds most."""
    allowed: bool
    remaining: int
    """The largest cost that would be allowed right after this check."""
    retry_after_ns: int | None
    """Nanoseconds until the same request would be allowed: 0 if it was, None if it never can be."""
    reset_after_ns: int
    """Nanoseconds until the counter is as if untouched."""
    delay_ns: int = 0
    """Nanoseconds that an allowed request has to wait for its place in a queue."""
    place_ns: int = 0
    """The time of that place on the clock of the store."""
    source: str = "store"
    """The name of what decided: the store, or its substitute."""
    parts: Parts = ()
    """See `limits`."""

    @property
    def limits(self) -> tuple[Decision, ...]:
        """The decision of each of several limits; of a single one, this decision."""
        return self._several() or (self,)

    @property
    def stack(self) -> tuple[Limit, ...] | None:
        """The limits of several parts that are not built yet; else None."""
        parts = self.parts
        return None if not parts or isinstance(parts[0], Decision) else parts[0]

    @property
    def figures(self) -> list[tuple[int, int]]:
        """The remaining units of each limit in `stack`, and the time until it resets."""
        results: Any = self.parts[1]
        if type(results) is list:
            return [(one[2], one[3]) for one in results]
        return [(one[1], one[3]) for one in results]

    @property
    def retry_after(self) -> float | None:
        """Seconds until the same request would be allowed; 0.0 if it was, None if never."""
        nanoseconds = self.retry_after_ns
        if not nanoseconds:
            return None if nanoseconds is None else 0.0
        if nanoseconds < EXACT_AS_FLOAT:
            return nanoseconds / SECOND
        return seconds_at_least(nanoseconds)

    @property
    def is_estimate(self) -> bool:
        """True if `retry_after` is an estimate: a slot is free when its holder releases it."""
        is_denied = not self.allowed and self.retry_after_ns is not None
        has_slots = isinstance(self.limit, Concurrency) and self.source not in _EXACT_SOURCES
        return is_denied and has_slots

    @property
    def delay(self) -> float:
        """Seconds that an allowed request has to wait for its place: 0.0 without a queue."""
        return seconds_at_least(self.delay_ns)

    @property
    def reset_after(self) -> float:
        """Seconds until the counter is as if untouched."""
        nanoseconds = self.reset_after_ns
        if nanoseconds < EXACT_AS_FLOAT:
            return nanoseconds / SECOND
        return seconds_at_least(nanoseconds)

    def __bool__(self) -> bool:
        return self.allowed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Decision):
            return NotImplemented
        return self._all() == other._all()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        delay = f"delay={self.delay}, " if self.delay_ns else ""
        return (
            f"Decision(allowed={self.allowed}, key={self.key!r}, limit='{self.limit}', "
            f"remaining={self.remaining}, retry_after={self.retry_after}, "
            f"reset_after={self.reset_after}, {delay}source={self.source!r})"
        )

    def _several(self) -> tuple[Decision, ...]:
        """Return the decisions of several limits, built when they are read."""
        parts = self.parts
        if not parts or isinstance(parts[0], Decision):
            return parts
        limits, results = parts
        if isinstance(results, list):
            return tuple(
                [
                    Decision(self.key, limit, wait == 0, remaining, wait, reset)
                    for limit, (_, wait, remaining, reset) in zip(limits, results, strict=True)
                ]
            )
        pairs = zip(limits, results, strict=True)
        return tuple([Decision(self.key, limit, *outcome) for limit, outcome in pairs])

    def _all(self) -> tuple[object, ...]:
        return *self[:-1], self._several()


@dataclass(frozen=True, slots=True)
class PartialHit:
    """The answer to a hit of up to some cost: true if anything was allowed."""

    granted: int
    """The units that were allowed, and charged."""
    decision: Decision
    """The answer of a peek at the rest, right after: `retry_after` is when the rest would fit."""

    def __bool__(self) -> bool:
        return self.granted > 0


_new: Final[Callable[[tuple[object, ...]], Decision]] = partial(tuple.__new__, Decision)
"""Make a decision of all its fields, in a third of the time of a call."""


def decide(key: str, limits: tuple[Limit, ...], outcomes: tuple[Outcome, ...]) -> Decision:
    """Return the decision that the *outcomes* of *limits* for one *key* make together.

    It is that of `combine`; the parts are built only when they are read.
    """
    if len(outcomes) == 1:
        allowed, remaining, wait, reset, delay, place, source = outcomes[0]
        return _new((key, limits[0], allowed, remaining, wait, reset, delay, place, source, ()))
    tightest = latest = outcomes[0]
    limit = limits[0]
    remaining, reset = tightest[1], tightest[3]
    for n in range(1, len(outcomes)):
        other = outcomes[n]
        if other[1] < remaining:
            remaining = other[1]
        if other[3] > reset:
            reset = other[3]
        if other[4] > latest[4]:
            latest = other
        if binds_more(other, tightest):
            tightest, limit = other, limits[n]
    if not tightest[0]:
        latest = tightest
    return _new(
        (
            key,
            limit,
            tightest[0],
            remaining,
            tightest[2],
            reset,
            latest[4],
            latest[5],
            tightest[6],
            (limits, outcomes),
        )
    )


def combine(parts: Sequence[Decision]) -> Decision:
    """The decision that *parts* make together; allowed only if all are.

    The tightest decides: the denial with the longest wait, or else the one with the least
    remaining. `remaining` is the least of all, `reset_after` the longest. Of several queues, the
    place is the latest; each part keeps its own.
    """
    if len(parts) == 1:
        return parts[0]
    tightest = latest = parts[0]
    for part in parts:
        if binds_more(part, tightest):
            tightest = part
        if part.delay_ns > latest.delay_ns:
            latest = part
    if not tightest.allowed:
        latest = tightest
    return Decision(
        tightest.key,
        tightest.limit,
        allowed=tightest.allowed,
        remaining=min([part.remaining for part in parts]),
        retry_after_ns=tightest.retry_after_ns,
        reset_after_ns=max([part.reset_after_ns for part in parts]),
        source=tightest.source,
        parts=tuple(parts),
        delay_ns=latest.delay_ns,
        place_ns=latest.place_ns,
    )


def binds_more(part: Decision | Outcome, other: Decision | Outcome) -> bool:
    """True if *part* is tighter than *other*: denials by their wait, those without end most; the
    others by what is left."""
    if part.allowed:
        return other.allowed and part.remaining < other.remaining
    if other.allowed or part.retry_after_ns is None:
        return other.allowed or other.retry_after_ns is not None
    return other.retry_after_ns is not None and part.retry_after_ns > other.retry_after_ns


OVERRIDE: Final = "override"
"""The source of such decisions."""

PATH: Final = "path"
"""The source of the denial of a request whose path is longer than what rules examine."""

_EXACT_SOURCES: Final = frozenset({OVERRIDE, PATH, "fail_closed"})
"""Sources whose waits have nothing to do with slots."""


def decide_blocked(
    wait_ns: int | None, pairs: Iterable[tuple[str, Limit]], source: str = OVERRIDE
) -> Decision:
    """The denial of the (key, limit) pairs in *pairs*, which are blocked for *wait_ns* more; None:
    for ever."""
    return combine([denial(key, limit, wait_ns, wait_ns or 0, source) for key, limit in pairs])


def denial(key: str, limit: Limit, wait_ns: int | None, reset_ns: int, source: str) -> Decision:
    """The denial of a request that no counter decided."""
    return Decision(
        key,
        limit,
        allowed=False,
        remaining=0,
        retry_after_ns=wait_ns,
        reset_after_ns=reset_ns,
        source=source,
    )


HeaderMode = Literal["on", "brief", "off", "redacted"]
"""The part of a rule that responses show: all; only when to retry; that without the rule's name;
nothing."""

FailurePolicy = Literal["fail_open", "fail_closed", "local"]

RETRY_AFTER_FAILURE_NS: Final = SECOND
"""The wait of a caller that is denied because the store is gone."""


@dataclass(frozen=True, slots=True)
class OnFailure:
    """The failure policy of a limit while the store is gone.

    *mode* `fail_open` allows, but in each process no more than *share* of the limit; `local` is the
    same on purpose: a share of the limit stays enforced; `fail_closed` denies. After
    *open_ns* without the store a limit that fails open does what *then* says instead; None: it
    stays open. With *raises* the caller receives the `StoreError` instead of a decision.
    """

    mode: FailurePolicy = "fail_open"
    share: Fraction = Fraction(1)
    open_ns: int | None = None
    then: Literal["fail_closed", "local"] = "fail_closed"
    raises: bool = False

    def __post_init__(self) -> None:
        checked_policy(self.mode)
        if not 0 < self.share <= 1:
            raise OptionError(f"share is {self.share}; expected above 0, up to 1")
        if self.open_ns is not None and (self.open_ns < 0 or self.mode != "fail_open"):
            raise OptionError("max_fail_open is for fail_open, and at least 0")


def checked_policy(policy: str) -> FailurePolicy:
    """*policy* if it is one; else an `OptionError` that lists them."""
    for known in get_args(FailurePolicy):
        if policy == known:
            return known  # type: ignore[no-any-return]
    choices = " or ".join(repr(known) for known in get_args(FailurePolicy))
    raise OptionError(f"on_store_failure is {policy!r}; expected {choices}")


def read_on_failure(given: str | OnFailure) -> OnFailure:
    """*given*, a policy or all that goes with one, as the latter."""
    return given if isinstance(given, OnFailure) else OnFailure(checked_policy(given))


def decide_without_store(policy: FailurePolicy, pairs: Iterable[tuple[str, Limit]]) -> Decision:
    """The decision for the (key, limit) pairs in *pairs* that no store could make.

    Its `source` is the policy, which distinguishes it from a decision of the store.
    """
    if policy != "fail_open":
        wait_ns = RETRY_AFTER_FAILURE_NS
        return combine([denial(key, limit, wait_ns, 0, policy) for key, limit in pairs])
    return combine(
        [
            Decision(key, limit, True, limit.quota, 0, 0, source=policy)  # noqa: FBT003
            for key, limit in pairs
        ]
    )


class RateLimitedError(HeadgateError):
    """A decorated call was denied; `decision` says by which limit and when to retry."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        super().__init__(decision)

    def __str__(self) -> str:
        decision = self.decision
        if decision.retry_after is None:
            wait = "it can never fit"
        else:
            wait = f"retry after {decision.retry_after:g} s"
        return f"{decision.key!r} is over its limit of {decision.limit}: {wait}"
