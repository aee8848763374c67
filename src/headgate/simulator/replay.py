"""Replay traffic on virtual time against a policy, through the engine, on a store in memory.

The clock is that of the traffic, so nothing sleeps. Requests that look alike share a plan of the
policy, and the prepared takes of that plan. A plan that belongs to one request or one moment
(slots, markers of repeated requests, blocks) is decided by the engine each time.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from headgate.engine.use_cases import Engine, PreparedTakes
from headgate.errors import OptionError
from headgate.llm.usage import Usage
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.identity.parts import claim_of, hasher
from headgate.policy.model import BUILT_IN_PARTS
from headgate.policy.path import ANY, ONE, compiled, readings
from headgate.runtime.drivers import drive
from headgate.simulator.results import MAX_KEYS, KeyCounts, Outcome, RuleCounts, TimeSeries
from headgate.simulator.traffic import Given, Traffic
from headgate.stores.memory import MemoryStore
from headgate.units import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from headgate import algorithms
    from headgate.decision import Decision
    from headgate.engine.plan import Plan, RulePlan
    from headgate.engine.verdict import Verdict
    from headgate.policy.identity import Found
    from headgate.policy.model import Policy
    from headgate.simulator.results import Count
    from headgate.simulator.traffic import Arrival, Event, ModelUse, SimulatedRequest
    from headgate.stores.base import TakeNow

    Results = Sequence[algorithms.Outcome] | Sequence[Decision]
    """The outcomes of limits, or the decisions of rules."""

DEFAULT_LATENCY_NS: Final = 100 * MILLISECOND
"""The time that a request is served for, if the trace does not say."""
MAX_PLANS: Final = 100_000
"""The number of different requests whose plans are kept."""
_GC_THRESHOLD: Final = 200_000
_PROGRESS_INTERVAL: Final = 10_000
"""The number of requests between two reports of progress."""
_CALLER_PARTS: Final = ("api_key", "user_id", "tenant")
_LONGEST_SECRET: Final = 80
_HASHED: Final = re.compile(r"~[0-9a-f]{32}")

KeyFormat = Literal["hashed", "clear"]
"""The form of secrets in reported keys."""

Progress = Callable[[int, "float | None"], None]
"""A function that gets the number of requests so far, and their share of the traffic, 0 to 1."""


def replay(
    policy: Policy,
    arrivals: Traffic | Iterable[Arrival],
    *,
    name: str = "policy",
    progress: Progress | None = None,
    step_ns: int | None = None,
    latency_ns: int = DEFAULT_LATENCY_NS,
    salt: bytes = b"",
    keys: KeyFormat = "hashed",
) -> Outcome:
    """Return the outcome of *arrivals* under *policy*, which the reports call *name*.

    *step_ns* is the step of the time series, *latency_ns* the time that requests without one are
    served for. *salt* hashes the secrets in keys; *keys* says if reports show these hashes.

    Arrivals are in the order of time; one that is earlier than those before it counts at their
    time. Raises `OptionError` if there are none.
    """
    traffic = arrivals if isinstance(arrivals, Traffic) else Given(arrivals)
    began_s = perf_counter()
    run: _Replay | None = None
    with _rare_collections():
        for batch in traffic.batches():
            if run is None:
                series = TimeSeries(batch[0][0], step_ns)
                run = _Replay(policy, series, latency_ns=latency_ns, salt=salt, keys=keys)
            end = run.requests + len(batch)
            for start in range(0, len(batch), _PROGRESS_INTERVAL):
                run.follow(batch[start : start + _PROGRESS_INTERVAL], traffic)
                if progress is not None:
                    share = traffic.share  # of what was read, which is ahead of what is decided
                    done = None if share is None else share * run.requests / end
                    progress(run.requests, done)
    if run is None:
        raise OptionError("there is nothing to replay: the traffic has no requests")
    return run.outcome(name, traffic, perf_counter() - began_s)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage more rarely: millions of requests come and go, none of them in cycles."""
    usual = gc.get_threshold()
    gc.set_threshold(max(usual[0], _GC_THRESHOLD), *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


class _Take(NamedTuple):
    """A prepared take of a plan, and the counts of its rules with the place of their results."""

    decide: Callable[[str, int], Decision] | None
    """For one rule: it has one key and one cost. The result is a decision."""
    take: TakeNow
    """For several rules. The results are outcomes, one for each limit."""
    keys: tuple[str, ...]
    costs: tuple[int, ...]
    rules: list[tuple[int, int, RuleCounts, Count]]
    is_deciding: bool
    has_queue: bool


class _Planned(NamedTuple):
    """The takes of requests that look alike, and the count of their caller."""

    takes: list[_Take]
    caller: Count


class _Replay:
    """The traffic so far under one policy."""

    def __init__(
        self, policy: Policy, series: TimeSeries, *, latency_ns: int, salt: bytes, keys: KeyFormat
    ) -> None:
        self._now_ns = series.began_ns
        self._policy = policy
        self._latency_ns = latency_ns
        self._compiled = CompiledPolicy(policy, salt=salt, clock=self._clock)
        store = MemoryStore(clock=self._clock, sweeps_idle=False)
        self._engine = Engine(store)
        self._prepared = PreparedTakes(store)
        self._series = series
        self._cell = series.cell()
        self._secrets = Secrets(policy, salt) if keys == "clear" else None
        self._plans: dict[SimulatedRequest, _Planned] = {}
        self._class_of = RequestClasses(policy).class_of
        self._plans_by_class: dict[Hashable, _Planned] = {}
        self._callers = KeyCounts(self._forget)
        self._rules = {
            rule.id: RuleCounts(rule, series, KeyCounts(self._forget)) for rule in policy.rules
        }
        self._slots = SlotHolders(self._engine, self._set_clock)
        self._overridden = {(one.rule, one.key) for one in policy.overrides}
        self._leases = 0
        self._delayed = 0
        self.requests = 0
        """The number of requests so far."""

    def _forget(self) -> None:
        """Drop all plans: their counts must be fetched again."""
        self._plans.clear()
        self._plans_by_class.clear()

    def _clock(self) -> int:
        return self._now_ns

    def _set_clock(self, now_ns: int) -> None:
        self._now_ns = now_ns

    def follow(self, batch: list[Event], traffic: Traffic) -> None:
        """Decide the requests of *batch*."""
        plans, series, decide = self._plans, self._series, self._decide
        now_ns, next_ns = self._now_ns, series.next_ns
        denied = before = 0
        for place, event in enumerate(batch):
            at_ns, request, took_ns = event
            if at_ns > now_ns:
                self._now_ns = now_ns = at_ns
                if at_ns >= next_ns:
                    self._count(place - before, denied)
                    before, denied = place, 0
                    series.advance(at_ns)
                    next_ns = series.next_ns
            planned = plans.get(request)
            if planned is None:
                denials, caller = self._first(request, took_ns)
            else:
                denials, caller = decide(planned.takes), planned.caller
            if denials is not None:
                denied += 1
                caller[1] += 1
                if traffic.retries_denied:
                    traffic.deny(event, retry_after_ns(denials))
        self._count(len(batch) - before, denied)
        self.requests += len(batch)

    def _count(self, requests: int, denied: int) -> None:
        self._cell[0] += requests - denied
        self._cell[1] += denied

    def _decide(self, takes: list[_Take]) -> Results | None:
        """Decide a request by the takes of its plan; None if it is allowed."""
        denials: Results | None = None
        for decide, take, keys, costs, rules, is_deciding, has_queue in takes:
            results: Results
            results = take(keys, costs) if decide is None else (decide(keys[0], costs[0]),)
            for start, end, counts, by_key in rules:
                is_allowed = results[start].allowed
                if end - start > 1:
                    is_allowed = all(one.allowed for one in results[start:end])
                if is_allowed:
                    counts.cell[0] += 1
                    by_key[0] += 1
                    continue
                counts.cell[1] += 1
                by_key[1] += 1
                if counts.first_denied_ns is None:
                    counts.first_denied_ns = self._now_ns
                if is_deciding:
                    denials = results
            if has_queue and denials is None and any(one.delay_ns for one in results):
                self._delayed += 1
        return denials

    def _first(
        self, simulated: SimulatedRequest, took_ns: int | None
    ) -> tuple[Results | None, Count]:
        """Decide a request that has no plan yet, or whose plan is for it alone."""
        class_ = self._class_of(simulated)
        planned = None if class_ is None else self._plans_by_class.get(class_)
        if planned is not None:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            self._plans[simulated] = planned
            return self._decide(planned.takes), planned.caller
        request = simulated.request()
        lease = str(self._leases) if self._compiled.has_slots else None
        plan = self._compiled.plan(request, cost=simulated.cost, lease=lease)
        found = self._compiled.identifier.find(request)
        caller = self._callers.count_of(_caller_of(found))
        if self._secrets is not None:
            self._secrets.add(found)
        if plan.is_plain and not self._is_overridden(plan):
            planned = _Planned([self._take(plan, rules) for rules in plan.takes], caller)
            if max(len(self._plans), len(self._plans_by_class)) >= MAX_PLANS:
                self._forget()
            self._plans[simulated] = planned
            if class_ is not None:
                self._plans_by_class[class_] = planned
            return self._decide(planned.takes), caller
        verdict = self._decide_alone(plan, simulated.call, took_ns)
        if verdict.allowed:
            return None, caller
        return [one.decision for one in verdict.enforced if not one.decision.allowed], caller

    def _take(self, plan: Plan, rules: Sequence[RulePlan]) -> _Take:
        """Prepare one of the takes of *plan*."""
        checks = [check for one in rules for check in one.checks]
        prepared = self._prepared.of(checks)
        decide = prepared.decide if len(rules) == 1 else None
        counted: list[tuple[int, int, RuleCounts, Count]] = []
        start = 0
        for one in rules:
            counts = self._rules[one.rule.id]
            end = start + (len(one.checks) if decide is None else 1)
            counted.append((start, end, counts, counts.keys.count_of(one.key)))
            start = end
        is_deciding = rules is plan.deciding
        return _Take(
            decide,
            prepared.take,
            tuple([check.key for check in checks]),
            tuple([check.cost for check in checks]),
            counted,
            is_deciding,
            is_deciding and plan.has_queue,
        )

    def _decide_alone(self, plan: Plan, call: ModelUse | None, took_ns: int | None) -> Verdict:
        """Decide by a plan that is for one request, and hold the slots and amounts that it takes.
        A *call* whose output is known is settled at its end; one without costs its estimate."""
        now_ns = self._now_ns
        if plan.lease is not None or plan.open:
            self._slots.advance(now_ns)
            self._now_ns = now_ns
            self._leases += 1
        is_settled = plan.open and call is not None and call.output_tokens is not None
        if is_settled:
            name, hold_ns = plan.lease or str(self._leases), max_hold_ns(plan)
            verdict = drive(self._engine.reserve(plan, name, hold_ns, is_recorded=False))
        else:
            verdict = drive(self._engine.decide(plan, is_recorded=False))
        for one in verdict.rules:
            counts = self._rules.get(one.rule.id)  # None: the path is too long for any rule
            if counts is not None:
                counts.count(one.key, now_ns, is_denied=not one.decision.allowed)
        if verdict.delay_ns:
            self._delayed += 1
        if plan.lease is not None or verdict.held is not None:
            lasts_ns = self._latency_ns if took_ns is None else took_ns
            self._slots.hold(verdict, amounts_of(verdict, call), now_ns, lasts_ns)
        return verdict

    def _is_overridden(self, plan: Plan) -> bool:
        overridden = self._overridden
        return bool(overridden) and any((one.rule.id, one.key) in overridden for one in plan.rules)

    def outcome(self, name: str, traffic: Traffic, took_s: float) -> Outcome:
        """Return the outcome of all requests so far."""
        allowed, denied = self._series.lines(self._cell)
        callers, callers_denied = self._callers.totals()
        keys = [self._callers, *[one.keys for one in self._rules.values()]]
        shown = (lambda key: key) if self._secrets is None else self._secrets.reveal
        notes = notes_on(
            self._policy,
            delayed=self._delayed,
            latency_ns=self._latency_ns if self._leases else None,
            is_exact=all(one.is_exact for one in keys),
        )
        return Outcome(
            policy_name=name,
            revision=self._policy.revision,
            began_ns=self._series.began_ns,
            ended_ns=self._now_ns,
            step_ns=self._series.step_ns,
            requests=self.requests,
            allowed=sum(allowed),
            denied=sum(denied),
            callers=callers,
            callers_denied=callers_denied,
            allowed_series=allowed,
            denied_series=denied,
            rules=tuple([one.result(shown) for one in self._rules.values()]),
            retries=traffic.retries,
            skipped=traffic.skipped,
            took_s=took_s,
            delayed=self._delayed,
            notes=(*traffic.notes, *notes),
        )


def max_hold_ns(plan: Plan) -> int:
    """The time for which the amounts of *plan* are held."""
    return max(one.rule.hold_ns or 0 for one in plan.rules)


def amounts_of(verdict: Verdict, call: ModelUse | None) -> dict[str, int]:
    """The amount that *call* is charged at its end, by rule."""
    if verdict.held is None or call is None:
        return {}
    usage = Usage(call.prompt_tokens, call.output_tokens or 0)
    return {
        one.rule.id: one.rule.final_cost(usage, call.model)
        for one in verdict.held.rules
        if one.rule.final_cost is not None
    }


def retry_after_ns(denials: Results) -> int | None:
    """Return the time after which a denied request would be allowed; None if never."""
    waits = [one.retry_after_ns for one in denials if not one.allowed]
    return None if None in waits else max([wait or 0 for wait in waits])


def _caller_of(found: Found) -> str:
    """Return the first of API key, user and tenant that the request has; else its address."""
    for name in _CALLER_PARTS:
        value = found.get(name)
        if value is not None:
            return f"{name}={value}"
    return f"ip={found.ip}"


def notes_on(
    policy: Policy, *, delayed: int, latency_ns: int | None, is_exact: bool
) -> Iterator[str]:
    """Yield what a replay under *policy* leaves out or assumes, for people.

    *latency_ns* is the assumed time of requests, if that mattered. If not *is_exact*, some figures
    are estimates.
    """
    fair = [rule.id for rule in policy.rules if rule.fair is not None and rule.mode != "off"]
    if fair:
        yield f"fair queues are not simulated: {', '.join(fair)}"
    after = [rule.id for rule in policy.rules if rule.cost.after is not None]
    if after:
        yield f"costs that are charged after the response are not simulated: {', '.join(after)}"
    if policy.pressure is not None:
        yield "limits are not lowered under pressure"
    if delayed:
        yield f"{delayed:,} of the allowed requests were delayed in a queue"
    if latency_ns is not None:
        yield (
            "requests without a duration in the trace were served for "
            f"{latency_ns / MILLISECOND:g} ms"
        )
    if not is_exact:
        yield (
            f"more than {MAX_KEYS:,} keys under a rule: the number of keys is an estimate, within "
            "2.5%; figures of single keys are lower bounds"
        )


class Secrets:
    """The secrets in the keys of *policy* by their hashes, for operators who own the trace."""

    __slots__ = ("_claims", "_hash", "_values")

    def __init__(self, policy: Policy, salt: bytes) -> None:
        names = {part for rule in policy.rules for part in rule.key_by} - {*BUILT_IN_PARTS}
        claims = [claim_of(name, policy.identity) for name in sorted(names)]
        self._claims = [claim for claim in claims if claim.secret]
        self._hash = hasher(salt)
        self._values: dict[str, str] = {}

    def add(self, found: Found) -> None:
        """Keep the secrets of a request, if there is room."""
        for claim in self._claims:
            value = claim.value(found)
            if value is not None and len(self._values) < MAX_KEYS:
                self._values[self._hash(value)] = ascii(value[:_LONGEST_SECRET])[1:-1]

    def reveal(self, key: str) -> str:
        """Return *key* with its secrets in the clear, as far as they are known."""
        return _HASHED.sub(lambda digest: self._values.get(digest[0], digest[0]), key)


class RequestClasses:
    """Classes of requests that *policy* plans alike though their paths differ, as `/users/7` and
    `/users/8`.

    A pattern of paths is made of words, `*` and `**`. A segment that is no word of any pattern can
    only match an asterisk, so all such segments are equal, if no rule counts by path. Paths that
    servers read in different ways have no class.
    """

    __slots__ = ("_has_endpoint_keys", "_words")

    def __init__(self, policy: Policy) -> None:
        rules = [rule for rule in policy.rules if rule.mode != "off"]
        self._has_endpoint_keys = any("endpoint" in rule.key_by for rule in rules)
        patterns = [
            *[one for rule in policy.rules for one in rule.match.endpoints or ()],
            *[cost.endpoint for rule in policy.rules for cost in rule.cost.endpoints],
            *[one for priority in policy.priorities for one in priority.match.endpoints or ()],
        ]
        segments = {one for pattern in patterns for one in compiled(pattern).segments}
        self._words = {one: one for one in segments - {ONE, ANY}}

    def class_of(self, simulated: SimulatedRequest) -> Hashable | None:
        """Return the class of a request; None if it has none."""
        if self._has_endpoint_keys:
            return None
        found = readings(simulated.path)
        if len(found) != 1:
            return None
        word = self._words.get
        path = tuple([word(segment, "") for segment in found[0]])  # no segment is empty
        return (
            simulated.method,
            path,
            simulated.headers,
            simulated.ip,
            simulated.cost,
            simulated.call,
        )


class SlotHolders:
    """The requests that hold slots or amounts: their slots are renewed; at their end they are
    released, and the amounts settled.

    *set_clock* moves virtual time, as both happen at times of their own.
    """

    __slots__ = ("_engine", "_order", "_queue", "_set_clock")

    def __init__(self, engine: Engine, set_clock: Callable[[int], None]) -> None:
        self._engine = engine
        self._set_clock = set_clock
        self._order = count()
        self._queue: list[tuple[int, int, int, Verdict, Mapping[str, int]]] = []

    def hold(self, verdict: Verdict, amounts: Mapping[str, int], now_ns: int, took_ns: int) -> None:
        """Hold what *verdict* grants from *now_ns* on, for *took_ns*; settle it for *amounts*."""
        self._schedule(now_ns, now_ns + took_ns, verdict, amounts)

    def advance(self, now_ns: int) -> None:
        """Renew and release all that is due up to *now_ns*."""
        queue = self._queue
        while queue and queue[0][0] <= now_ns:
            due_ns, _, end_ns, verdict, amounts = heappop(queue)
            self._set_clock(due_ns)
            if due_ns >= end_ns:
                drive(self._engine.settle(verdict, amounts))
                drive(self._engine.release(verdict))
            else:
                drive(self._engine.renew(verdict))
                self._schedule(due_ns, end_ns, verdict, amounts)

    def _schedule(
        self, now_ns: int, end_ns: int, verdict: Verdict, amounts: Mapping[str, int]
    ) -> None:
        lasts_ns = verdict.slots_last_ns
        if lasts_ns is not None or verdict.held is not None:
            due_ns = end_ns if lasts_ns is None else min(end_ns, now_ns + max(1, lasts_ns // 3))
            heappush(self._queue, (due_ns, next(self._order), end_ns, verdict, amounts))
