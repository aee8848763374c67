"""What is done about requests that look alike: found out once, then done for each of them.

A way is a function that asks the store about one more request and counts what came of it. It ends
with None if the request is allowed, else with what the rules said that refused it. The store is
asked as the engine asks it: by the hit of a single counter where that is all there is
to a rule, by one take of several, or else through the engine itself.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final

from headgate.decision import combine
from headgate.engine.plan import Plan
from headgate.engine.prepared import PreparedTakes, decisions_of
from headgate.limits import LeakyQueue
from headgate.policy.path import ANY, ONE, compiled, readings
from headgate.runtime.drivers import drive
from headgate.stores.base import concluded

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from headgate.clock import Clock
    from headgate.decision import Decision
    from headgate.engine.plan import RulePlan
    from headgate.engine.use_cases import Engine
    from headgate.engine.verdict import Verdict
    from headgate.policy.model import Policy
    from headgate.simulator.tallies import Count, RuleTally
    from headgate.simulator.traffic import Asked
    from headgate.stores.memory import MemoryStore


Way = Callable[[], "Sequence[Decision] | None"]

_NOTHING_SAID: Sequence[Decision] = ()


class Ways:
    """Makes the ways of requests under one policy, on *store* by *engine*."""

    __slots__ = ("_clock", "_engine", "_takes", "_tallies", "delayed")

    def __init__(
        self, store: MemoryStore, engine: Engine, clock: Clock, tallies: dict[str, RuleTally]
    ) -> None:
        self._takes = PreparedTakes(store)
        self._engine = engine
        self._clock = clock
        self._tallies = tallies
        self.delayed = 0
        """How many requests were told to wait for their turn."""

    def of(self, plan: Plan) -> Way:
        """The way of all requests that *plan* is good for: it must be plain."""
        rules = plan.rules
        if not rules:
            return _free
        if any(isinstance(limit, LeakyQueue) for one in rules for limit in one.limits):
            return self._through_engine(plan)
        if len(plan.deciding) <= 1 and all(len(one.checks) == 1 for one in rules):
            return _in_turn([self._hit_of(one) for one in rules])
        if not plan.shadows:
            return self._at_once(plan)
        if len(rules) > 1:  # a rule in shadow is asked for itself, so it has a way of its own
            decided = [plan.deciding] if plan.deciding else []
            parts = [*decided, *[(one,) for one in plan.shadows]]
            return _in_turn([self.of(Plan(plan.revision, part)) for part in parts])
        return self._through_engine(plan)

    def decide(self, plan: Plan) -> Verdict:
        """Decide by *plan* through the engine, and count it."""
        verdict = drive(self._engine.decide(plan, is_recorded=False))
        now_ns = self._clock()
        for one in verdict.rules:
            tally = self._tallies[one.rule.id]
            denied = not one.decision.allowed
            tally.cell[denied] += 1
            tally.keys.count_of(one.key)[denied] += 1
            if denied and tally.first_denied_ns is None:
                tally.first_denied_ns = now_ns
        if verdict.delay_ns:
            self.delayed += 1
        return verdict

    def _through_engine(self, plan: Plan) -> Way:
        def way() -> Sequence[Decision] | None:
            return refusals_of(self.decide(plan))

        return way

    def _hit_of(self, one: RulePlan) -> Way:
        """The way under one rule with one limit."""
        check = one.checks[0]
        take, limit = self._takes.of((check,)).take, check.limit

        def hit(key: str, cost: int) -> Decision:
            return concluded(key, limit, take((key,), (cost,))[0])

        return _hitting(one, hit, self._clock, *self._counted(one))

    def _counted(self, one: RulePlan) -> tuple[RuleTally, Count]:
        tally = self._tallies[one.rule.id]
        return tally, tally.keys.count_of(one.key)

    def _at_once(self, plan: Plan) -> Way:
        """The way under several limits that all decide."""
        checks = [check for one in plan.deciding for check in one.checks]
        counted = [(*self._counted(one), len(one.checks)) for one in plan.deciding]
        take, clock = self._takes.of(checks).take, self._clock
        keys, costs = [check.key for check in checks], [check.cost for check in checks]

        def way() -> Sequence[Decision] | None:
            decisions = decisions_of(checks, take(keys, costs))
            refusals = None
            left = iter(decisions)
            for tally, count, limits in counted:
                decision = next(left) if limits == 1 else combine(list(islice(left, limits)))
                if decision.allowed:
                    tally.cell[0] += 1
                    count[0] += 1
                    continue
                tally.cell[1] += 1
                count[1] += 1
                if tally.first_denied_ns is None:
                    tally.first_denied_ns = clock()
                refusals = (*(refusals or ()), decision)
            return refusals

        return way


def refusals_of(verdict: Verdict) -> Sequence[Decision] | None:
    """What those rules said that refused; None if the request is allowed."""
    if verdict.allowed:
        return None
    return [one.decision for one in verdict.enforced if not one.decision.allowed]


def retry_after_ns(refusals: Sequence[Decision]) -> int | None:
    """When a refused request would be allowed; None if never."""
    longest = 0
    for one in refusals:
        wait_ns = one.retry_after_ns
        if wait_ns is None:
            return None
        longest = max(longest, wait_ns)
    return longest


def _free() -> None:
    """No rule is for it."""


def _hitting(
    one: RulePlan, hit: Callable[[str, int], Decision], clock: Clock, tally: RuleTally, count: Count
) -> Way:
    check, cell = one.checks[0], tally.cell
    key, cost = check.key, check.cost
    is_shadow = one.rule.mode == "shadow"

    def way() -> Sequence[Decision] | None:
        decision = hit(key, cost)
        if decision.allowed:
            cell[0] += 1
            count[0] += 1
            return None
        cell[1] += 1
        count[1] += 1
        if tally.first_denied_ns is None:
            tally.first_denied_ns = clock()
        return None if is_shadow else (decision,)

    return way


def _in_turn(ways: list[Way]) -> Way:
    """Several ways, of which at most one can refuse."""
    if len(ways) == 1:
        return ways[0]
    first = ways[0]
    others = _in_turn(ways[1:])

    def way() -> Sequence[Decision] | None:
        refusals = first()
        return others() or refusals

    return way


# Which requests are the same to a policy, though their paths differ: `/users/7` and `/users/8`.
#
# A pattern of paths is made of words, `*` and `**`. A segment that no pattern of the policy has as
# a word can only fit an asterisk, so it is as good as any other such segment, if no rule counts by
# path. Only paths that all servers read in one way are compared: of others nothing is said.


_BY_PATH: Final = "endpoint"
_OTHER: Final = ""
"""In place of a segment that is no word; no segment is empty."""


class Likeness:
    """Tells whether requests are alike under *policy*."""

    def __init__(self, policy: Policy) -> None:
        rules = [rule for rule in policy.rules if rule.mode != "off"]
        self._counts_by_path = any(_BY_PATH in rule.key_by for rule in rules)
        self._spelt = {word: word for word in _words(policy)}

    def of(self, asked: Asked) -> Hashable | None:
        """The same for requests that are alike; None if nobody can say."""
        if self._counts_by_path:
            return None
        found = readings(asked.path)
        if len(found) != 1:
            return None
        spelt = self._spelt.get
        path = tuple([spelt(segment, _OTHER) for segment in found[0]])
        return asked.method, path, asked.headers, asked.ip, asked.cost


def _words(policy: Policy) -> Iterator[str]:
    """All words in patterns of *policy*."""
    for pattern in _patterns(policy):
        for segment in compiled(pattern).segments:
            if segment not in (ONE, ANY):
                yield segment


def _patterns(policy: Policy) -> Iterator[str]:
    for rule in policy.rules:
        yield from rule.match.endpoints or ()
        for cost in rule.cost.endpoints:
            yield cost.endpoint
    for one in policy.priorities:
        yield from one.match.endpoints or ()
