"""Traffic replayed on virtual time through the real engine, on a store in memory.

Nobody sleeps: the clock is that of the traffic. Requests that look alike are planned once, unless
something in the plan belongs to one request alone, or to a time: places, marks of retries, blocks.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Final, Literal

from headgate.engine.use_cases import Engine
from headgate.errors import OptionError
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.identity.parts import claim_of, hasher
from headgate.policy.model import BUILT_IN_PARTS
from headgate.runtime.drivers import drive
from headgate.simulator.request_plans import Likeness, Ways, refusals_of, retry_after_ns
from headgate.simulator.tallies import MOST_KEYS, Keys, Outcome, RuleTally, Steps
from headgate.simulator.traffic import Given, Traffic
from headgate.stores.memory import MemoryStore
from headgate.units import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from headgate.decision import Decision
    from headgate.engine.plan import Plan
    from headgate.engine.verdict import Verdict
    from headgate.policy.identity import Found
    from headgate.policy.model import Policy
    from headgate.simulator.request_plans import Way
    from headgate.simulator.tallies import Count
    from headgate.simulator.traffic import Arrival, Asked, Event


# What a replay leaves out or takes for granted, in words for people.


def notes_on(
    policy: Policy, *, delayed: int, latency_ns: int | None, is_exact: bool
) -> Iterator[str]:
    """What to know about a replay under *policy*: *latency_ns* is how long requests were served
    for that did not say, if that mattered; *is_exact*, whether all keys were told apart."""
    fair = [rule.id for rule in policy.rules if rule.fair is not None and rule.mode != "off"]
    if fair:
        yield f"fair queues are not simulated: {', '.join(fair)}"
    after = [rule.id for rule in policy.rules if rule.cost.after is not None]
    if after:
        yield f"what requests cost beyond their entry is not simulated: {', '.join(after)}"
    if policy.pressure is not None:
        yield "limits are not lowered under pressure"
    if delayed:
        yield f"{delayed:,} of the allowed requests were delayed to wait for their turn in a queue"
    if latency_ns is not None:
        yield (
            f"requests whose time the trace does not tell were served for "
            f"{latency_ns / MILLISECOND:g} ms"
        )
    if not is_exact:
        yield (
            f"more than {MOST_KEYS:,} keys under a rule: how many there are is estimated, to 2.5%; "
            "figures of single keys are the least that they were"
        )


# Secrets in keys, in the clear: for operators who look at their own trace.


_LONGEST_TOLD: Final = 80
_HASHED: Final = re.compile(r"~[0-9a-f]{32}")


class ClearKeys:
    """What the secrets in the keys of *policy* are, as far as they were seen; so many at most."""

    __slots__ = ("_claims", "_hash", "_seen")

    def __init__(self, policy: Policy, salt: bytes) -> None:
        names = {part for rule in policy.rules for part in rule.key_by} - {*BUILT_IN_PARTS}
        claims = [claim_of(name, policy.identity) for name in sorted(names)]
        self._claims = [claim for claim in claims if claim.secret]
        self._hash = hasher(salt)
        self._seen: dict[str, str] = {}

    def see(self, found: Found) -> None:
        """Remember the secrets of a request."""
        for claim in self._claims:
            value = claim.value(found)
            if value is not None and len(self._seen) < MOST_KEYS:
                self._seen[self._hash(value)] = ascii(value[:_LONGEST_TOLD])[1:-1]

    def tell(self, key: str) -> str:
        """*key* with its secrets in the clear."""
        return _HASHED.sub(lambda digest: self._seen.get(digest[0], digest[0]), key)


# Requests that are being served: the places they hold, and when they end.


class Places:
    """Gives back the places of requests when they are over, and renews them until then.

    *set_clock* moves virtual time, as both happen at times of their own.
    """

    __slots__ = ("_engine", "_order", "_set_clock", "_waiting", "next_ns")

    def __init__(self, engine: Engine, set_clock: Callable[[int], None]) -> None:
        self._engine = engine
        self._set_clock = set_clock
        self._order = count()
        self._waiting: list[tuple[int, int, int, Verdict]] = []
        self.next_ns: int | None = None
        """When there is something to do next."""

    def take(self, verdict: Verdict, now_ns: int, took_ns: int) -> None:
        """See to the places that *verdict* has from *now_ns* on, for *took_ns*."""
        self._wait(now_ns, now_ns + took_ns, verdict)

    def advance(self, now_ns: int) -> None:
        """Do all that is to be done up to *now_ns*."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= now_ns:
            due_ns, _, end_ns, verdict = heappop(waiting)
            self._set_clock(due_ns)
            if due_ns >= end_ns:
                drive(self._engine.release(verdict))
            else:
                drive(self._engine.renew(verdict))
                self._wait(due_ns, end_ns, verdict)
        self.next_ns = waiting[0][0] if waiting else None

    def _wait(self, now_ns: int, end_ns: int, verdict: Verdict) -> None:
        lasts_ns = verdict.slots_last_ns
        if lasts_ns is None:
            return
        due_ns = min(end_ns, now_ns + max(1, lasts_ns // 3))
        heappush(self._waiting, (due_ns, next(self._order), end_ns, verdict))
        self.next_ns = self._waiting[0][0]


if TYPE_CHECKING:
    Known = tuple[Way, Count]

DEFAULT_LATENCY_NS: Final = 100 * MILLISECOND
"""How long a request is served for, if the trace does not say."""
MOST_KNOWN: Final = 100_000
"""For how many requests that look alike it is remembered what is done about them."""
_COLLECTED_AFTER: Final = 200_000
_TOLD_AFTER: Final = 10_000
"""After how many requests progress is told, however many come at once."""
_CALLER: Final = ("api_key", "user_id", "tenant")

KeysTold = Literal["hashed", "clear"]
"""How secrets in keys are told."""

Progress = Callable[[int, "float | None"], None]
"""Is told how many requests there were so far, and how much of the traffic that is, from 0 to 1."""


def replay(
    policy: Policy,
    arrivals: Traffic | Iterable[Arrival],
    *,
    name: str = "policy",
    progress: Progress | None = None,
    step_ns: int | None = None,
    latency_ns: int = DEFAULT_LATENCY_NS,
    salt: bytes = b"",
    keys: KeysTold = "hashed",
) -> Outcome:
    """What *policy*, called *name*, would have made of *arrivals*.

    *step_ns* is what series are told in, *latency_ns* how long requests are served for that do not
    say; *salt* is what secrets in keys are hashed with, and *keys* whether they are told so.

    Arrivals come in the order of their time; one that is earlier than those before it is taken at
    their time. Raises `OptionError` if there are none.
    """
    traffic = arrivals if isinstance(arrivals, Traffic) else Given(arrivals)
    began_s = perf_counter()
    under: _Replay | None = None
    with _few_collections():
        for batch in traffic.batches():
            if under is None:
                steps = Steps(batch[0][0], step_ns)
                under = _Replay(policy, steps, latency_ns=latency_ns, salt=salt, keys=keys)
            come = under.requests + len(batch)
            for start in range(0, len(batch), _TOLD_AFTER):
                under.follow(batch[start : start + _TOLD_AFTER], traffic)
                if progress is not None:
                    share = traffic.share  # of what has come, not of what was done about it
                    done = None if share is None else share * under.requests / come
                    progress(under.requests, done)
    if under is None:
        raise OptionError("there is nothing to replay: the traffic has no requests")
    return under.outcome(name, traffic, perf_counter() - began_s)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Have garbage looked for more rarely: requests come and go by the million, none in cycles."""
    usual = gc.get_threshold()
    gc.set_threshold(max(usual[0], _COLLECTED_AFTER), *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


class _Replay:
    """One policy, and the traffic so far."""

    def __init__(
        self, policy: Policy, steps: Steps, *, latency_ns: int, salt: bytes, keys: KeysTold
    ) -> None:
        self._now_ns = steps.began_ns
        self._policy = policy
        self._latency_ns = latency_ns
        self._compiled = CompiledPolicy(policy, salt=salt, clock=self._clock)
        store = MemoryStore(clock=self._clock)
        self._engine = Engine(store)
        self._steps = steps
        self._cell = steps.cell()
        self._clear = ClearKeys(policy, salt) if keys == "clear" else None
        self._known: dict[Asked, Known] = {}
        self._likeness = Likeness(policy)
        self._alike: dict[Hashable, Known] = {}
        self._callers = Keys(self._forget)
        self._tallies = {
            rule.id: RuleTally(rule, steps, Keys(self._forget)) for rule in policy.rules
        }
        self._ways = Ways(store, self._engine, self._clock, self._tallies)
        self._places = Places(self._engine, self._set_clock)
        self._overridden = {(one.rule, one.key) for one in policy.overrides}
        self._leases = 0
        self.requests = 0
        """How many there were so far."""

    def _forget(self) -> None:
        """Ask for all counts again."""
        self._known.clear()
        self._alike.clear()

    def _clock(self) -> int:
        return self._now_ns

    def _set_clock(self, now_ns: int) -> None:
        self._now_ns = now_ns

    def follow(self, batch: list[Event], traffic: Traffic) -> None:
        """Go on with *batch*."""
        known, steps = self._known, self._steps
        now_ns, next_ns = self._now_ns, steps.next_ns
        denied = before = 0
        for place, event in enumerate(batch):
            at_ns, asked, took_ns = event
            if at_ns > now_ns:
                self._now_ns = now_ns = at_ns
                if at_ns >= next_ns:
                    self._count(place - before, denied)
                    before, denied = place, 0
                    steps.turn(at_ns)
                    next_ns = steps.next_ns
            found = known.get(asked)
            if found is None:
                refusals, caller = self._first(asked, took_ns)
            else:
                way, caller = found
                refusals = way()
            if refusals is not None:
                denied += 1
                caller[1] += 1
                if traffic.hears:
                    traffic.refused(event, retry_after_ns(refusals))
        self._count(len(batch) - before, denied)
        self.requests += len(batch)

    def _count(self, requests: int, denied: int) -> None:
        self._cell[0] += requests - denied
        self._cell[1] += denied

    def outcome(self, name: str, traffic: Traffic, took_s: float) -> Outcome:
        """What came of it all."""
        allowed, denied = self._steps.lines(self._cell)
        callers, callers_denied = self._callers.how_many()
        keys = [self._callers, *[one.keys for one in self._tallies.values()]]
        return Outcome(
            policy_name=name,
            revision=self._policy.revision,
            began_ns=self._steps.began_ns,
            ended_ns=self._now_ns,
            step_ns=self._steps.step_ns,
            requests=self.requests,
            allowed=sum(allowed),
            denied=sum(denied),
            callers=callers,
            callers_denied=callers_denied,
            allowed_series=allowed,
            denied_series=denied,
            rules=tuple(one.result(self._told) for one in self._tallies.values()),
            retries=traffic.retries,
            skipped=traffic.skipped,
            took_s=took_s,
            delayed=self._ways.delayed,
            notes=(
                *traffic.notes,
                *notes_on(
                    self._policy,
                    delayed=self._ways.delayed,
                    latency_ns=self._latency_ns if self._leases else None,
                    is_exact=all(one.is_exact for one in keys),
                ),
            ),
        )

    def _told(self, key: str) -> str:
        return key if self._clear is None else self._clear.tell(key)

    def _first(self, asked: Asked, took_ns: int | None) -> tuple[Sequence[Decision] | None, Count]:
        """Decide on a request that nothing is known of, or that is like no other."""
        alike = self._likeness.of(asked)
        known = None if alike is None else self._alike.get(alike)
        if known is not None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[asked] = known
            return known[0](), known[1]
        request = asked.request()
        lease = str(self._leases) if self._compiled.has_slots else None
        plan = self._compiled.plan(request, cost=asked.cost, lease=lease)
        found = self._compiled.identifier.find(request)
        caller = self._callers.count_of(_caller_of(found))
        if self._clear is not None:
            self._clear.see(found)
        if self._is_good_for_all(plan):
            way = self._ways.of(plan)
            if max(len(self._known), len(self._alike)) >= MOST_KNOWN:
                self._forget()
            self._known[asked] = way, caller
            if alike is not None:
                self._alike[alike] = way, caller
            return way(), caller
        if plan.lease is None:
            return refusals_of(self._ways.decide(plan)), caller
        now_ns = self._now_ns
        self._places.advance(now_ns)
        self._now_ns = now_ns
        self._leases += 1
        verdict = self._ways.decide(plan)
        self._places.take(verdict, now_ns, self._latency_ns if took_ns is None else took_ns)
        return refusals_of(verdict), caller

    def _is_good_for_all(self, plan: Plan) -> bool:
        overridden = self._overridden
        return plan.is_plain and not (
            overridden and any((one.rule.id, one.key) in overridden for one in plan.rules)
        )


def _caller_of(found: Found) -> str:
    """Who asks, as far as the request says: the first of an API key, a user, a tenant; else the
    address."""
    for name in _CALLER:
        value = found.get(name)
        if value is not None:
            return f"{name}={value}"
    return f"ip={found.ip}"
