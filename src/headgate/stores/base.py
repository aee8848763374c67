"""The one interface of a store, in its two forms, and how its replies become decisions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.decision import Concluded, Decision, combine
from headgate.errors import CostError, KeyInvalidError, UsageError
from headgate.limits import Accuracy, Concurrency, Limit, parse_limit
from headgate.stores.operations import Check, Operation, Outcomes, Take

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.algorithms import Outcome

R = TypeVar("R")

LARGEST_AMOUNT: Final = 10**18
"""The largest cost or amount that is taken for one."""

Hitter = Callable[[str, int], Decision]
"""A store's short cut: (key, cost) -> decision."""

Terms = Mapping[str, Accuracy]
"""How exactly the counters of some groups are to be kept, by the group's name."""

Asker = Callable[[str, int], Awaitable[Decision]]
"""A short cut that has to be awaited."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One part of a check over different keys and limits.

    The counter is named by *name* and *key*. Without a name the limit itself serves as one, so
    two limits never share a counter; with a name a changed limit goes on with what was used.
    """

    key: str
    limit: Limit | str
    cost: int = 1
    name: str | None = None

    def __post_init__(self) -> None:
        limit = parse_limit(self.limit) if isinstance(self.limit, str) else self.limit
        if not isinstance(limit, Limit):
            raise UsageError(f"the limit of a Hit is {limit!r}; expected text or a Limit")
        refuse_concurrency((limit,), "hit_all")
        if self.name is not None and (type(self.name) is not str or not self.name):
            raise UsageError(f"the name of a Hit is {self.name!r}; expected text, or None")
        object.__setattr__(self, "key", checked_key(self.key))
        object.__setattr__(self, "limit", limit)
        checked_cost(self.cost)


class Store(ABC):
    """A place where counters live, for callers that may block. Safe to share among threads."""

    may_fail = True
    """Whether anything can raise `StoreError`."""

    lends = False
    """Whether it knows `Lend`, `Pour`, `Draw` and `Absorb`."""

    shares = False
    """Whether it knows `Share`."""

    @abstractmethod
    def run(self, operation: Operation[R]) -> R:
        """Carry out *operation* atomically, on the store's own clock.

        Raises `StoreError` when it cannot. What has been charged then is at most once.
        """

    def hitter(self, places: Sequence[tuple[str, Limit]]) -> Hitter | None:
        """A faster way than `run` to hit a key in all *places* (groups and limits), if any.

        A limiter asks once, when it is made: here a store can refuse a limit that it cannot hold.
        """
        return None

    def take_quickly(self, checks: Sequence[Check]) -> tuple[Decision, ...] | None:
        """As `run` with a `Take` of *checks*, if there is a faster way: what each came to.

        None if there is none for these; nothing was done then.
        """
        return None

    def adopt(self, terms: Terms) -> None:  # noqa: B027 (most stores keep everything exactly)
        """From now on keep the counters of each group as exactly as *terms* say.

        Groups that are not named are kept exactly. What was taken in advance of a group whose terms
        have changed is given back.
        """

    def hit_all(self, hits: Iterable[Hit], *, namespace: str = "headgate") -> Decision:
        """Charge different keys and limits, all or nothing."""
        checks = checks_of(hits, namespace)
        return conclude(checks, self.run(Take(checks)))

    def close(self) -> None:  # noqa: B027 (most stores hold nothing open)
        """Give back what the store holds open. It must not be used afterwards."""


class AsyncStore(ABC):
    """The same for callers in an event loop: `run` never blocks it."""

    waits = True
    """Whether `run` may be suspended, and so be cancelled when half done."""

    lends = False
    """As `Store.lends`."""

    shares = False
    """As `Store.shares`."""

    @abstractmethod
    async def run(self, operation: Operation[R]) -> R:
        """As `Store.run`. If the caller is cancelled, the operation may still be carried out."""

    def hitter(self, places: Sequence[tuple[str, Limit]]) -> Hitter | None:
        """As `Store.hitter`: a function that decides at once, without waiting for anything."""
        return None

    def asker(self, places: Sequence[tuple[str, Limit]]) -> Asker | None:
        """As `Store.hitter`, for a store that has to be waited for."""
        return None

    def take_quickly(self, checks: Sequence[Check]) -> tuple[Decision, ...] | None:
        """As `Store.take_quickly`: what can be decided at once, without waiting for anything."""
        return None

    def adopt(self, terms: Terms) -> None:  # noqa: B027
        """As `Store.adopt`."""

    async def hit_all(self, hits: Iterable[Hit], *, namespace: str = "headgate") -> Decision:
        """Charge different keys and limits, all or nothing."""
        checks = checks_of(hits, namespace)
        return conclude(checks, await self.run(Take(checks)))

    async def aclose(self) -> None:  # noqa: B027
        """Give back what the store holds open. It must not be used afterwards."""


def checks_of(hits: Iterable[Hit], namespace: str) -> tuple[Check, ...]:
    """The checks that *hits* stand for, each hit looked at before anything is asked."""
    checks: list[Check] = []
    limits: dict[tuple[str, str], Limit] = {}
    for n, hit in enumerate(hits):
        limit = getattr(hit, "limit", None)
        if not isinstance(limit, Limit):
            raise UsageError(f"item {n} of hit_all is {hit!r}; expected a Hit(key, limit, cost)")
        group = group_name(namespace, hit.name or limit)
        check = Check(group, hit.key, limit, hit.cost)
        if limits.setdefault((group, hit.key), limit) != limit:
            raise UsageError(f"two limits for the one counter {hit.name!r} of {hit.key!r}")
        checks.append(check)
    if not checks:
        raise UsageError("hit_all needs at least one Hit")
    return tuple(checks)


def group_name(namespace: str, what: int | str | Limit) -> str:
    """The name of a group of counters: of a place in a stack, of a name, or of a limit.

    No two of them are equal, whatever the namespace and the name contain.
    """
    kind = ":" if isinstance(what, int) else "=" if isinstance(what, str) else "/"
    return f"{len(namespace)}{kind}{namespace}{kind}{what}"


def conclude(checks: Sequence[Check], outcomes: Outcomes, *, source: str = "store") -> Decision:
    """The decision that the *outcomes* of *checks* make together."""
    pairs = zip(checks, outcomes, strict=True)
    return combine([concluded(check.key, check.limit, outcome, source) for check, outcome in pairs])


def concluded(key: str, limit: Limit, outcome: Outcome, source: str = "store") -> Decision:
    """The decision that one *outcome* is."""
    return Concluded(
        key,
        limit,
        allowed=outcome.allowed,
        remaining=outcome.remaining,
        retry_after_ns=outcome.retry_after_ns,
        reset_after_ns=outcome.reset_after_ns,
        source=source,
        delay_ns=outcome.delay_ns,
        turn_ns=outcome.turn_ns,
    )


def checked_key(key: str) -> str:
    """*key* if it can name a counter: a string that is not empty."""
    if not isinstance(key, str):
        raise KeyInvalidError(f"the key is {key!r}; expected a string such as 'user:42'")
    if not key:
        raise KeyInvalidError("the key is empty: every caller would share it; name whose it is")
    return key if type(key) is str else str.__str__(key)


def checked_cost(cost: int, what: str = "cost") -> int:
    """*cost* if it is an integer of at least 0."""
    if type(cost) is int and 0 <= cost <= LARGEST_AMOUNT:
        return cost
    if isinstance(cost, bool) or not isinstance(cost, int):
        raise CostError(f"{what} is {cost!r}; expected an integer of at least 0")
    if cost < 0:
        shown = cost if cost >= -LARGEST_AMOUNT else "far below 0"
        raise CostError(f"{what} is {shown}; it must be at least 0 (refund gives quota back)")
    if cost > LARGEST_AMOUNT:
        raise CostError(f"{what} is more than {LARGEST_AMOUNT}, more than anything can be")
    return cost


def refuse_concurrency(limits: Iterable[Limit], verb: str) -> None:
    """Raise `UsageError` if one of *limits* has slots, which *verb* could never give back."""
    for limit in limits:
        if isinstance(limit, Concurrency):
            raise UsageError(
                f"{verb} is not for the slots of {limit}, which are given back; use slot(key)"
            )


def refuse_undivided(limits: Iterable[Limit], verb: str) -> None:
    """Raise `UsageError` if one of *limits* cannot be counted in parts: *verb* would need that."""
    for limit in limits:
        if not limit.is_divisible:
            raise UsageError(f"{verb} is not for {limit}: its places or turns come from the store")
