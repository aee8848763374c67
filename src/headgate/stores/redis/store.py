"""The store on Redis or Valkey, for callers that may block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from headgate.errors import StoreError
from headgate.stores.operations import Check, Operation, Take, TakeEach
from headgate.stores.port import Hitter, Store, checked_cost, checked_key, conclude
from headgate.stores.redis.calls.combining import Answer, Combiner
from headgate.stores.redis.calls.hitting import LoneHit
from headgate.stores.redis.calls.spreading import (
    Single,
    Spreadable,
    each_for_itself,
    first_name,
    groups_of,
    spread,
)
from headgate.stores.redis.faults import timed_out, too_late
from headgate.stores.redis.forking import watch_forks
from headgate.stores.redis.settings import Settings, part_finder
from headgate.stores.redis.transport import open_transport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.clock import Clock
    from headgate.decisions import Decision
    from headgate.limits import Limit
    from headgate.stores.redis.calls.hitting import Place
    from headgate.stores.redis.calls.pending import Pending

R = TypeVar("R")


class RedisStore(Store):
    """Counters in Redis or Valkey, shared by a whole fleet, on the server's clock.

    *url* names one server, Sentinels or a cluster. *clock* is for tests and simulations: it is
    then used in place of the server's. Connects when it is first used. Safe to share among threads,
    and usable in a process forked off the one that made it.
    """

    lends = True
    shares = True

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self._settings = Settings(url, clock)
        self._transport = open_transport(url)
        if clock is not None:
            self.clock = clock
        self.begin_anew()
        watch_forks(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.where}>"

    @property
    def where(self) -> str:
        """The addresses of its servers, without credentials."""
        return self._settings.where

    @property
    def part_of(self) -> Callable[[str], str] | None:
        """From a key to the server that it is kept by, "" if unknown; None if there is but one."""
        return part_finder(self._transport) if self._transport.is_cluster else None

    def run(self, operation: Operation[R]) -> R:
        if isinstance(operation, TakeEach):
            return cast("R", self._take_each(operation))
        spreadable = cast("Spreadable", operation)
        groups = groups_of(spreadable, self._settings.names)
        if len(groups) > 1:
            return cast("R", self._run_spread(spreadable, groups))
        return cast("R", self._ask([operation])[0].result())

    def hitter(self, places: Sequence[tuple[str, Limit]]) -> Hitter | None:
        place = self._settings.place(places)
        return None if place is None else self._paced_hitter(place)

    def close(self) -> None:
        self._transport.close()

    def begin_anew(self) -> None:
        """Start with no thread under way: in a new store, or in a process that was forked."""
        self._combiners: dict[bytes, Combiner] = {}

    def _paced_hitter(self, place: Place) -> Hitter:
        group, limit, quota = place.group, place.limit, place.quota
        name_of, transport = self._settings.names.of_group(group), self._transport
        may_be_alone = self._settings.has_server_clock

        def hit(key: str, cost: int = 1) -> Decision:
            key = checked_key(key)
            if not 0 < checked_cost(cost) <= quota:
                checks = (Check(group, key, limit, cost),)
                return conclude(checks, self.run(Take(checks)))
            name, answer = name_of(key), Answer()
            combiner = self._combiner(name)
            if may_be_alone and combiner.take_lane():
                try:
                    transport.perform((LoneHit(place, name, key, cost, answer),))
                finally:
                    combiner.hand_on()
            else:
                was_sent = combiner.perform(
                    lambda pending: pending.hit(place, name, key, cost, answer)
                )
                self._give_up([answer], was_sent=was_sent)
            return cast("Decision", answer.result())

        return hit

    def _take_each(self, operation: TakeEach) -> tuple[Any, ...]:
        names = self._settings.names
        if any(len(groups_of(take, names)) > 1 for take in operation.takes):
            return each_for_itself([self._outcome(take) for take in operation.takes])
        return each_for_itself([answer.outcome() for answer in self._ask(operation.takes)])

    def _outcome(self, take: Take) -> Any:
        try:
            return self.run(take)
        except StoreError as error:
            return error

    def _run_spread(self, operation: Spreadable, groups: list[list[int]]) -> Any:
        steps = spread(operation, groups)
        results: list[Any] | None = None
        while True:
            try:
                step = next(steps) if results is None else steps.send(results)
            except StopIteration as end:
                return end.value
            results = [answer.outcome() for answer in self._ask(step)]

    def _ask(self, operations: Sequence[Operation[Any]]) -> list[Answer]:
        """Have all *operations* carried out, each of them in one slot."""
        answers = [Answer() for _ in operations]

        def add(pending: Pending) -> None:
            for operation, answer in zip(operations, answers, strict=True):
                pending.operation(operation, answer)

        names = self._settings.names
        found = [
            first_name(cast("Spreadable | Single", operation), names) for operation in operations
        ]
        was_sent = True
        if len({names.tag(name) for name in found}) == 1:
            was_sent = self._combiner(found[0]).perform(add)
        elif found:  # for several nodes, of which one may be slow: nobody else waits for them
            pending = self._settings.pending()
            add(pending)
            self._transport.perform(pending.drain())
        self._give_up(answers, was_sent=was_sent)
        return answers

    def _combiner(self, name: bytes) -> Combiner:
        """Where threads meet that ask for what is asked together with *name*.

        In a cluster there is one for each tag: a node that is hung holds up its own keys only.
        """
        settings = self._settings
        tag = settings.names.tag(name)
        combiner = self._combiners.get(tag)
        if combiner is None:
            new = Combiner(
                self._transport, settings.pending, settings.connections, settings.timeout
            )
            combiner = self._combiners.setdefault(tag, new)
        return combiner

    def _give_up(self, answers: Sequence[Answer], *, was_sent: bool) -> None:
        """Fail what was not answered in time."""
        late = timed_out if was_sent else too_late
        for answer in answers:
            if not answer.done():
                answer.set_exception(late(self._settings.where, self._settings.timeout))
