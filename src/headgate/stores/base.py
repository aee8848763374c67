"""The port of a store: one class for callers that block and callers in event loops.

A backend (memory, shm, Redis) carries operations out. A layer (circuit breaker, leases,
replication) is a store in front of another; it is written once, as a generator of effects.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.decision import Decision, combine
from headgate.errors import CostError, KeyInvalidError, UsageError
from headgate.limits import Accuracy, Concurrency, LeakyQueue, Limit, parse_limit
from headgate.runtime.drivers import adrive, drive
from headgate.runtime.effects import Close, Reply, Run
from headgate.stores.operations import Check, Operation, Outcomes, Take

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.algorithms import Outcome
    from headgate.clock import Clock
    from headgate.runtime.effects import Effect, Effects

R = TypeVar("R")

LARGEST_AMOUNT: Final = 10**18
"""The largest cost or amount."""

Accuracies = Mapping[str, Accuracy]
"""The accuracy of some groups of counters, by the group's name."""

Place = tuple[str, Limit]
"""A group of counters, and the limit that they are kept under."""


TakeNow = Callable[[Sequence[str], Sequence[int]], Outcomes]
"""A function from keys and costs, one of each for each limit, to outcomes."""


class Prepared:
    """A take of the same limits for many keys, prepared once.

    `effects(keys, costs)` does what `Store.effects` does with a `Take`: one key and one cost for
    each limit, in their order, all or nothing. Keys and costs are valid (`checked_key`,
    `checked_cost`): the caller has checked them.

    `effect(keys, costs)`, if there is one, is the only effect of `effects`: a layer that yields it
    spares a generator (0.3 us).

    `now(keys, costs)`, if there is one, returns the outcomes at once, or None if the store has to
    decide; nothing was charged then. `decide(key, cost)`, if there is one, makes the decision of
    one key and one cost for all limits at once, and checks both.
    """

    __slots__ = ("decide", "effect", "effects", "now")

    def __init__(
        self,
        effects: Callable[[Sequence[str], Sequence[int]], Effects[Outcomes]],
        now: Callable[[Sequence[str], Sequence[int]], Outcomes | None] | None = None,
        decide: Callable[[str, int], Decision] | None = None,
    ) -> None:
        self.effects = effects
        self.effect: Callable[[Sequence[str], Sequence[int]], Effect] | None = None
        self.now = now
        self.decide = decide

    @classmethod
    def at_once(
        cls, take: TakeNow, decide: Callable[[str, int], Decision] | None = None
    ) -> Prepared:
        """A take of a store that does not wait."""

        def effects(keys: Sequence[str], costs: Sequence[int]) -> Effects[Outcomes]:
            return take(keys, costs)
            yield  # a generator all the same

        return cls(effects, take, decide)

    @classmethod
    def of_effect(cls, effect: Callable[[Sequence[str], Sequence[int]], Effect]) -> Prepared:
        """A take of a store that waits, as one effect."""

        def effects(keys: Sequence[str], costs: Sequence[int]) -> Effects[Outcomes]:
            outcomes: Outcomes = yield effect(keys, costs)
            return outcomes

        prepared = cls(effects)
        prepared.effect = effect
        return prepared

    def take(self, keys: Sequence[str], costs: Sequence[int]) -> Outcomes:
        """Take in this thread, which may block."""
        outcomes = None if self.now is None else self.now(keys, costs)
        return drive(self.effects(keys, costs)) if outcomes is None else outcomes

    def atake(
        self, keys: Sequence[str], costs: Sequence[int]
    ) -> Outcomes | Coroutine[Any, Any, Outcomes]:
        """Take in an event loop; the outcomes, or a coroutine of them."""
        outcomes = None if self.now is None else self.now(keys, costs)
        return adrive(self.effects(keys, costs)) if outcomes is None else outcomes


class Store(ABC):
    """A place where counters live. Safe to share among threads and event loops."""

    waits = True
    """False if operations never wait for I/O: an event loop may then call `run` itself."""

    may_fail = True
    """True if an operation can raise `StoreError`."""

    grants_leases = False
    """True if the store knows `GrantLease` and `MergeUsage`."""

    publishes_values = False
    """True if the store knows `PublishValue`."""

    is_shared = False
    """True if other processes use the same counters: a limiter needs a name there."""

    clock: Clock | None = None
    """The clock that decides, if it can be read here; None: it is the clock of a server."""

    part_of: Callable[[str], str] | None = None
    """A function from a key to the part of the store, such as a node, that keeps it; None: the
    store has no parts."""

    @abstractmethod
    def run(self, operation: Operation[R]) -> R:
        """Carry out *operation* atomically, on the store's own clock. May block.

        Raises `StoreError` if it cannot. The operation was then carried out at most once.
        """

    async def arun(self, operation: Operation[R]) -> R:
        """Carry out *operation* without blocking the event loop.

        If the caller is cancelled, the operation may still be carried out.
        """
        if not self.waits:
            return self.run(operation)
        return await asyncio.to_thread(self.run, operation)

    def submit(self, operation: Operation[R]) -> asyncio.Future[R]:
        """Begin *operation* in the running event loop, and return its `Reply`.

        A store that has a future anyway returns that one: it costs no task (13 of 20 us).
        """
        return Reply.of(self.arun(operation))

    def effects(self, operation: Operation[R]) -> Effects[R]:
        """Carry out *operation* as a part of a generator of effects."""
        reply: R = yield Run(self, operation)
        return reply

    def prepare(self, places: Sequence[Place]) -> Prepared:
        """Prepare takes of the limits of *places*.

        Raises `LimitError` for a limit that this store cannot keep.
        """
        kept = tuple(places)

        def take(keys: Sequence[str], costs: Sequence[int]) -> Outcomes:
            return self.run(Take(checks_at(kept, keys, costs)))

        def effects(keys: Sequence[str], costs: Sequence[int]) -> Effects[Outcomes]:
            return self.effects(Take(checks_at(kept, keys, costs)))

        return Prepared(effects) if self.waits else Prepared.at_once(take)

    def set_accuracies(self, accuracies: Accuracies) -> None:  # noqa: B027 (most stores are exact)
        """Set the accuracy of each group of counters from now on.

        Groups that are not named are exact. Leases of a group whose accuracy has changed are
        returned.
        """

    def close(self) -> None:  # noqa: B027 (most stores hold nothing open)
        """Release what the store holds open. It must not be used afterwards."""

    async def aclose(self) -> None:
        """Release what the store holds open, in an event loop."""
        self.close()


class Layer(Store):
    """A store in front of *inner*. Subclasses define `effects`."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.waits = inner.waits
        self.may_fail = inner.may_fail
        self.grants_leases = inner.grants_leases
        self.publishes_values = inner.publishes_values
        self.is_shared = inner.is_shared
        self.clock = inner.clock
        self.part_of = inner.part_of

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.inner!r}>"

    @abstractmethod
    def effects(self, operation: Operation[R]) -> Effects[R]:
        """Carry out *operation*, by `inner.effects` as far as needed."""

    def run(self, operation: Operation[R]) -> R:
        return drive(self.effects(operation))

    async def arun(self, operation: Operation[R]) -> R:
        return await adrive(self.effects(operation))

    def set_accuracies(self, accuracies: Accuracies) -> None:
        self.inner.set_accuracies(accuracies)

    def closing(self) -> Effects[None]:
        """Close this layer, and the store behind it."""
        yield Close(self.inner)

    def close(self) -> None:
        drive(self.closing())

    async def aclose(self) -> None:
        await adrive(self.closing())


def address_of(store: Store) -> str:
    """The address of *store* for messages, without credentials."""
    return str(getattr(store, "where", type(store).__name__))


def checks_at(
    places: Sequence[Place], keys: Sequence[str], costs: Sequence[int]
) -> tuple[Check, ...]:
    """The checks of *keys* and *costs* in *places*."""
    return tuple(
        [
            Check(group, key, limit, cost)
            for (group, limit), key, cost in zip(places, keys, costs, strict=True)
        ]
    )


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
        reject_concurrency((limit,), "hit_all")
        if self.name is not None and (type(self.name) is not str or not self.name):
            raise UsageError(f"the name of a Hit is {self.name!r}; expected text, or None")
        object.__setattr__(self, "key", checked_key(self.key))
        object.__setattr__(self, "limit", limit)
        checked_cost(self.cost)


def group_name(namespace: str, what: int | str | Limit) -> str:
    """The name of a group of counters: of a place in a stack, of a name, or of a limit.

    No two of them are equal, whatever the namespace and the name contain.
    """
    kind = ":" if isinstance(what, int) else "=" if isinstance(what, str) else "/"
    return f"{len(namespace)}{kind}{namespace}{kind}{what}"


def groups_of(namespace: str, name: str, count: int) -> tuple[str, ...]:
    """The groups of the *count* limits called *name*: a rule, a limiter or an endpoint.

    Counters are named by that and by the limit's place: a changed limit keeps its usage.
    """
    names = [name if place == 0 else f"{name}#{place}" for place in range(count)]
    return tuple([group_name(namespace, each) for each in names])


def conclude(checks: Sequence[Check], outcomes: Outcomes) -> Decision:
    """The decision that the *outcomes* of *checks* make together."""
    pairs = zip(checks, outcomes, strict=True)
    return combine([concluded(check.key, check.limit, outcome) for check, outcome in pairs])


def concluded(key: str, limit: Limit, outcome: Outcome) -> Decision:
    """The decision that one *outcome* is."""
    return Decision(key, limit, *outcome)


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
        raise CostError(f"{what} is {shown}; it must be at least 0 (refund returns quota)")
    if cost > LARGEST_AMOUNT:
        raise CostError(f"{what} is more than {LARGEST_AMOUNT}, the largest amount")
    return cost


def reject_concurrency(limits: Iterable[Limit], verb: str) -> None:
    """Raise `UsageError` if one of *limits* has slots, which *verb* could never release."""
    for limit in limits:
        if isinstance(limit, Concurrency):
            raise UsageError(
                f"{verb} is not for the slots of {limit}, which have to be released; use slot(key)"
            )


def reject_partial(limits: Sequence[Limit], verb: str) -> None:
    """Raise `UsageError` if one of *limits* has slots or places in a queue: *verb* grants a part of
    a cost, and neither can be had in part."""
    reject_concurrency(limits, verb)
    for limit in limits:
        if isinstance(limit, LeakyQueue):
            raise UsageError(f"{verb} is not for {limit}: a place in a queue is had whole; use hit")


def reject_undivided(limits: Iterable[Limit], verb: str) -> None:
    """Raise `UsageError` if one of *limits* cannot be counted in parts: *verb* would need that."""
    for limit in limits:
        if not limit.is_divisible:
            raise UsageError(f"{verb} is not for {limit}: its slots or places come from the store")
