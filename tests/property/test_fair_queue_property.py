"""A fair queue against the fluid ideal, and what its theory promises in any history.

The promises, with `c` for the largest cost of a tenant and `w` for its weight:

1. Where all come at the start, nobody is ever behind the fluid schedule by more than `c`.
2. In any interval in which tenants f and g both wait throughout, what they are served differs by
   `|W_f / w_f - W_g / w_g| <= c_f / w_f + c_g / w_g` (Golestani 1994).
3. From when a tenant begins to wait, it is served at least its share of the weights of all, but for
   `c_f + (w_f / sum of w) * (sum of c of the others)`: none starves, however many there are.

2 and 3 hold whoever comes and goes, gives up or is weighed anew meanwhile; but a tenant whose own
first one gives up, or whose own weight changes, begins anew.

Where tenants come and go, a newcomer may be behind the fluid schedule by more than one cost. There
is no proof of a bound here; that it is one cost of each tenant is what is seen.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.overload.fair_queue import FairQueue, Item
from tests.support.fluid_schedule import Demand, Fluid, fluid_service
from tests.support.histories import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

TENANTS = "abcde"

_demands = st.dictionaries(
    st.sampled_from(TENANTS),
    st.builds(
        Demand,
        st.sampled_from((1, 2, 3, 7, 1000)),
        st.lists(st.integers(1, 9), min_size=1, max_size=12).map(tuple),
    ),
    min_size=1,
)


@examples(80)
@given(_demands)
@example({"a": Demand(1000, (1,) * 12), "b": Demand(1, (9,)), "c": Demand(1, (9, 9))})
@example({"a": Demand(1, (9,)), "b": Demand(1, (1,) * 12), "c": Demand(1, (1,) * 12)})
def test_nobody_is_behind_the_fluid_schedule_by_more_than_one_cost(
    demands: dict[str, Demand],
) -> None:
    queue = FairQueue()
    for tenant, demand in demands.items():
        for cost in demand.costs:
            queue.push(tenant, cost, demand.weight)
    served: dict[str, int] = defaultdict(int)
    while (item := queue.pop()) is not None:
        served[item.tenant] += item.cost
        ideal = fluid_service(demands, sum(served.values()))
        for tenant, demand in demands.items():
            assert served[tenant] >= ideal[tenant] - max(demand.costs)
    assert served == {tenant: demand.total for tenant, demand in demands.items()}


@examples(60)
@given(_demands, st.integers(0, 10**6))
def test_within_a_tenant_all_are_served_in_the_order_in_which_they_came(
    demands: dict[str, Demand], seed: int
) -> None:
    random = Random(seed)
    queue = FairQueue()
    waiting: dict[str, list[Item]] = {tenant: [] for tenant in demands}
    for tenant, demand in demands.items():
        for cost in demand.costs:
            waiting[tenant].append(queue.push(tenant, cost, demand.weight))
            if random.random() < 0.25:
                gone = random.choice(waiting[tenant])
                waiting[tenant].remove(gone)
                queue.cancel(gone)
    while (item := queue.pop()) is not None:
        assert waiting[item.tenant].pop(0) is item
    assert not any(waiting.values())


@examples(60)
@given(_demands, st.integers(0, 10**6))
def test_those_who_gave_up_leave_no_trace(demands: dict[str, Demand], seed: int) -> None:
    """The order is that of a queue in which they never were."""
    random = Random(seed)
    queue, without = FairQueue(), FairQueue()
    kept: list[tuple[Item, Item]] = []
    gone: list[Item] = []
    for tenant, demand in demands.items():
        for cost in demand.costs:
            item = queue.push(tenant, cost, demand.weight)
            if random.random() < 0.6:
                kept.append((item, without.push(tenant, cost, demand.weight)))
            else:
                gone.append(item)
    for item in gone:
        assert queue.cancel(item)
    twins = dict(kept)
    assert queue.cost == without.cost
    while (item := queue.pop()) is not None:  # type: ignore[assignment]  # None ends the loop
        assert twins[item] is without.pop()
    assert without.pop() is None


_event = st.one_of(
    st.none(), st.none(), st.tuples(st.sampled_from(TENANTS), st.sampled_from((1, 1, 2, 9)))
)


@examples(100)
@given(
    st.lists(st.sampled_from((1, 1, 2, 10, 1000)), min_size=5, max_size=5),
    st.lists(_event, min_size=10, max_size=80),
)
@example([1, 1, 1, 1, 1000], [*((t, 9) for t in "abcd"), None, ("e", 1), None, None, None, None])
def test_where_tenants_come_and_go_none_is_behind_the_fluid_by_more_than_a_cost_of_each(
    by_tenant: list[int], events: list[tuple[str, int] | None]
) -> None:
    """None serves the next item; else somebody comes with one."""
    weights = dict(zip(TENANTS, by_tenant, strict=True))
    queue, fluid = FairQueue(), Fluid(weights)
    served, costs = dict.fromkeys(TENANTS, 0), dict.fromkeys(TENANTS, 0)
    for event in events:
        if event is not None:
            tenant, cost = event
            queue.push(tenant, cost, weights[tenant])
            fluid.want(tenant, cost)
            costs[tenant] = max(costs[tenant], cost)
        elif (item := queue.pop()) is not None:
            served[item.tenant] += item.cost
            fluid.serve(item.cost)
            for tenant in TENANTS:
                assert served[tenant] >= fluid.served[tenant] - sum(costs.values())


def test_a_newcomer_of_great_weight_may_wait_for_one_cost_of_each_other() -> None:
    """Behind the ideal by more than one cost: what self-clocking has for its simplicity."""
    queue = FairQueue()
    for number in range(10):
        queue.push(f"old-{number}", 9)
    queue.pop()
    queue.push("new", 1, 1_000)
    order = [item.tenant for _ in range(10) if (item := queue.pop()) is not None]
    assert order.index("new") == 9


class Moment(NamedTuple):
    """After an item was served: how much each has been served in all, and who waits."""

    served: dict[str, int]
    waiting: frozenset[str]
    weights: dict[str, int]
    anew: dict[str, int]
    """How often each has begun anew."""


class History:
    """Bursts of arrivals at random, some who give up, weights that change; and one item served
    after another."""

    def __init__(self, seed: int, weights: dict[str, int], costs: dict[str, int]) -> None:
        self._random = Random(seed)
        self._weights = weights
        self._costs = costs
        self._queue = FairQueue()
        self._served = dict.fromkeys(weights, 0)
        self._anew = dict.fromkeys(weights, 0)
        self._lines: dict[str, list[Item]] = {tenant: [] for tenant in weights}

    def moments(self) -> Iterator[Moment]:
        queue = self._queue
        for _ in range(400):
            for tenant in self._weights:
                self._happen(tenant)
            waiting = frozenset(tenant for tenant in self._weights if queue.depth_of(tenant))
            item = queue.pop()
            if item is not None:
                # Whoever has had its last item served did wait until then.
                self._served[item.tenant] += item.cost
                assert self._lines[item.tenant].pop(0) is item
            yield Moment(dict(self._served), waiting, dict(self._weights), dict(self._anew))

    def _happen(self, tenant: str) -> None:
        random, line = self._random, self._lines[tenant]
        if random.random() < 0.12 and len(line) < 30:
            for _ in range(random.randint(1, 8)):
                cost = random.randint(1, self._costs[tenant])
                line.append(self._queue.push(tenant, cost, self._weights[tenant]))
        if line and random.random() < 0.1:
            gone = random.choice((line[0], random.choice(line)))
            self._anew[tenant] += gone is line[0]
            line.remove(gone)
            self._queue.cancel(gone)
        if random.random() < 0.01:
            self._weights[tenant] = random.choice((1, 2, 10, 1000))
            self._queue.reweigh(tenant, self._weights[tenant])
            self._anew[tenant] += 1


def _history(seed: int, weights: dict[str, int], costs: dict[str, int]) -> list[Moment]:
    return list(History(seed, weights, costs).moments())


def _random_tenants(seed: int) -> tuple[dict[str, int], dict[str, int]]:
    random = Random(f"tenants {seed}")
    weights = {tenant: random.choice((1, 1, 2, 3, 10)) for tenant in TENANTS}
    costs = {tenant: random.choice((1, 1, 3, 10)) for tenant in TENANTS}
    return weights, costs


def _intervals(moments: list[Moment], *tenants: str) -> list[tuple[int, int]]:
    """The longest intervals in which all of *tenants* wait, and none of them begins anew."""
    spans: list[tuple[int, int]] = []
    begin = None
    for index, moment in enumerate(moments):
        if begin is not None:
            anew = moments[begin].anew
            is_over = any(anew[tenant] != moment.anew[tenant] for tenant in tenants)
            if is_over or not moment.waiting.issuperset(tenants):
                spans.append((begin, index))
                begin = None
        if begin is None and moment.waiting.issuperset(tenants):
            begin = index
    if begin is not None:
        spans.append((begin, len(moments)))
    return spans


@pytest.mark.parametrize("seed", range(12))
def test_two_who_wait_are_served_alike_by_weight_in_any_interval(seed: int) -> None:
    weights, costs = _random_tenants(seed)
    moments = _history(seed, weights, costs)
    for f, g in ((f, g) for f in TENANTS for g in TENANTS if f < g):
        for begin, end in _intervals(moments, f, g):
            by_weight = moments[begin].weights
            bound = Fraction(costs[f], by_weight[f]) + Fraction(costs[g], by_weight[g])
            # What counts is how far the lead of one over the other moves within the interval.
            leads = [_lead(moment, f, g, by_weight) for moment in moments[max(begin - 1, 0) : end]]
            assert max(leads) - min(leads) <= bound, (seed, f, g)


def _lead(moment: Moment, f: str, g: str, weights: dict[str, int]) -> Fraction:
    return Fraction(moment.served[f], weights[f]) - Fraction(moment.served[g], weights[g])


@pytest.mark.parametrize("seed", range(12))
def test_none_starves(seed: int) -> None:
    weights, costs = _random_tenants(seed)
    moments = _history(seed, weights, costs)
    for tenant in TENANTS:
        others = sum(cost for name, cost in costs.items() if name != tenant)
        for begin, end in _intervals(moments, tenant):
            own = moments[begin].weights[tenant]
            greatest = [
                max(moment.weights[name] for moment in moments[begin:end])
                for name in TENANTS
                if name != tenant
            ]
            share = Fraction(own, own + sum(greatest))
            slack = costs[tenant] + share * others
            start = moments[max(begin - 1, 0)].served
            for moment in moments[begin:end]:
                work = sum(moment.served.values()) - sum(start.values())
                got = moment.served[tenant] - start[tenant]
                assert got >= share * work - slack, (seed, tenant)


@pytest.mark.parametrize("seed", range(12))
def test_no_turn_goes_to_waste_while_anybody_waits(seed: int) -> None:
    moments = _history(seed, *_random_tenants(seed))
    for before, after in pairwise(moments):
        if after.waiting:
            assert sum(after.served.values()) > sum(before.served.values()), seed


def test_ten_thousand_items_of_a_thousand_tenants_need_few_comparisons() -> None:
    """Not a time: that it takes O(log tenants) shows in how often tags are compared."""
    queue = FairQueue()
    for number in range(10_000):
        queue.push(f"t{number % 1_000}", 1 + number % 7, 1 + number % 5)
    heap = queue._heap
    counted = [_Counted(entry) for entry in heap]
    heap[:] = counted
    _Counted.comparisons = 0
    item = queue.peek()
    assert item is not None
    queue.pop()
    assert _Counted.comparisons <= 2 * 11
    assert len(queue) == 9_999


class _Counted(tuple[int, int, Item]):
    """An entry that counts how often it is compared."""

    comparisons = 0

    def __lt__(self, other: tuple[object, ...]) -> bool:
        _Counted.comparisons += 1
        return tuple.__lt__(self, other)
