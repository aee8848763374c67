"""Whatever the limits and their state: headers that parse, waits that suffice, nothing leaked."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import http_sf
from hypothesis import given
from hypothesis import strategies as st

from headgate import MemoryStore, RateLimiter
from headgate.decision import Decision, combine
from headgate.limits import Concurrency, LeakyQueue, Limit, PacedLimit, TokenBucket
from headgate.responses import (
    Answer,
    ResponseOptions,
    RuleAnswer,
    grpc_status,
    headers_for,
    limit_template,
    merged,
    prefers_problem,
    response_for,
)
from headgate.stores.base import conclude
from headgate.stores.operations import Check, Take
from headgate.testing import ManualClock
from tests.support.histories import LATELY, MICROSECOND, MINUTE, SECOND, examples
from tests.support.limit_kinds import KIND, limit_of

MODES: Any = st.sampled_from(["on", "on", "brief", "off", "redacted"])
WINDOWS = st.sampled_from([SECOND, MINUTE, 86_400 * SECOND, SECOND // 10]) | st.integers(
    1, 10**9
).map(lambda microseconds: microseconds * MICROSECOND)
QUOTAS = st.sampled_from([1, 2, 5]) | st.integers(1, 12) | st.integers(1, 10**6)
LARGEST = TokenBucket(10**15 - 1, 9 * 10**14)
QUEUES = st.builds(
    LeakyQueue,
    st.fractions(Fraction(1, 100), 1_000, max_denominator=100),
    st.integers(0, 30) | st.just(10**6),
    st.none() | st.sampled_from([0, 0.25, 1, 3.7]),
)
RATES = st.one_of([st.builds(limit_of, KIND, QUOTAS, WINDOWS)] * 5 + [QUEUES, st.just(LARGEST)])
SLOTS = st.builds(Concurrency, st.integers(1, 3), st.sampled_from([1, 2.5, 60]))
OPTIONS = st.builds(
    ResponseOptions,
    x_ratelimit=st.booleans(),
    ratelimit=st.just(True),
    draft03=st.booleans(),
    bucket=st.booleans(),
    jitter=st.sampled_from([0.0, 0.1, 1.0]) | st.floats(0, 1),
)


class Step(NamedTuple):
    """After a share of the first limit's period, *verb* with *amount* on rule number *rule*."""

    rule: int
    verb: str
    share: float
    amount: int


class Drawn(NamedTuple):
    """A rule's limits, and what may be told of it."""

    limits: list[Limit]
    mode: Any


@st.composite
def _rules(draw: st.DrawFn) -> list[Drawn]:
    stacks = st.lists(RATES, min_size=1, max_size=3)
    with_slots = st.builds(lambda slots, rates: [slots, *rates], SLOTS, st.lists(RATES, max_size=1))
    kinds = draw(st.sampled_from([stacks, stacks, stacks, stacks | with_slots]))
    return draw(st.lists(st.builds(Drawn, kinds, MODES), min_size=1, max_size=3))


STEPS = st.lists(
    st.builds(
        Step,
        st.integers(0, 2),
        st.sampled_from(["hit", "fill", "fill", "charge", "refund"]),
        st.sampled_from([0.0, 0.0, 0.01, 0.3, 1.0]) | st.floats(0, 2),
        st.integers(0, 14) | st.sampled_from([1, 1, 10**6, 10**15]),
    ),
    max_size=8,
)


class Scene:
    """Rules with a history, and the one request that is to be answered, all or nothing."""

    def __init__(self, rules: list[Drawn], history: list[Step], cost: int) -> None:
        self.rules = rules
        self.clock = ManualClock()
        self.clock.advance_ns(LATELY)
        self.store = MemoryStore(clock=self.clock)
        self.limiters = [
            RateLimiter(rule.limits, store=self.store, namespace=f"rule{n}")
            for n, rule in enumerate(rules)
        ]
        for step in history:
            self._play(step)
        self.has_slots = any(limiter._stack.has_slots for limiter in self.limiters)
        self.cost = 1 if self.has_slots else cost

    def _play(self, step: Step) -> None:
        limiter = self.limiters[step.rule % len(self.limiters)]
        self.clock.advance_ns(round(step.share * limiter.limits[0].period_ns))
        if limiter._stack.has_slots:
            limiter.slot("k").__enter__()
        elif step.verb == "fill":
            while limiter.peek("k").remaining < 20 and limiter.hit("k"):
                pass
        else:
            getattr(limiter, step.verb)("k", step.amount)

    @property
    def checks(self) -> list[tuple[Check, ...]]:
        return [limiter._stack.rule_plan("k", self.cost).checks for limiter in self.limiters]

    def ask(self) -> tuple[Decision, tuple[RuleAnswer, ...]]:
        """What all rules say together, and what each of them does."""
        checks = tuple(check for each in self.checks for check in each)
        take = Take(checks, lease="another") if self.has_slots else Take(checks)
        decision = conclude(checks, self.store.run(take))
        parts = iter(decision.limits)
        shown = tuple(
            RuleAnswer(f"rule{n}", combine([next(parts) for _ in rule.limits]), rule.mode)
            for n, rule in enumerate(self.rules)
        )
        return decision, shown

    def left(self, looks: list[tuple[int, Check]]) -> list[int]:
        """What is left of limits at the times of *looks*, which are in order, if nobody comes."""
        found = []
        for at, check in looks:
            self.clock.advance_ns(at - self.clock())
            found.append(self.store.run(Take((check,), consume=False))[0].remaining)
        return found


SCENES = st.builds(Scene, _rules(), STEPS, st.sampled_from([1, 1, 1, 2]) | st.integers(0, 14))


def _parsed(value: str) -> dict[str, dict[str, Any]]:
    """A list of strings with parameters, by string; what the parser lets pass is checked here."""
    items: Any = http_sf.parse(value.encode("ascii"), tltype="list")
    assert items
    found = dict(items)
    assert len(found) == len(items)
    for name, parameters in items:
        assert type(name) is str
        for key, parameter in parameters.items():
            if key == "qu":
                assert parameter == "concurrent-requests"
            else:
                assert type(parameter) is int
                assert 0 <= parameter < 10**15
    return found


def _open_limits(answer: Answer) -> list[tuple[str, Decision]]:
    """The limits of all rules whose headers are on."""
    return [limit for shown in answer.rules if shown.headers == "on" for limit in shown.limits]


def _check_fields(lines: dict[str, str], answer: Answer) -> None:
    """The pair of headers: of the rules that are on, all and no others."""
    names = {name for name, _ in _open_limits(answer)}
    if "RateLimit-Policy" not in lines:
        assert not names or not answer.allowed
        assert "RateLimit" not in lines
        return
    policies, limits = _parsed(lines["RateLimit-Policy"]), _parsed(lines["RateLimit"])
    assert set(policies) == set(limits) == names
    for name, policy in policies.items():
        others = set(policy) - {"q", "w"}
        assert others in (set(), {"hg-burst"}, {"hg-queue"}, {"qu"})
        assert policy.get("w", 1) > 0
        assert limits[name].keys() - {"t"} == {"r"}
        most = policy["hg-queue"] + 1 if "hg-queue" in policy else None
        most = most or policy.get("hg-burst", policy["q"])
        assert limits[name]["r"] <= most <= policy["q"]
        assert limits[name].get("t", 1) > 0
        assert limits[name].get("t", 0) <= int(lines.get("Retry-After", 10**15))


def _check_tightest(lines: dict[str, str], answer: Answer, now: int) -> None:
    if "X-RateLimit-Limit" not in lines:
        return
    decisions = [decision for _, decision in _open_limits(answer)]
    binding = combine(decisions)
    shown = [one for one in decisions if one.limit is binding.limit]
    assert lines["X-RateLimit-Limit"] == str(binding.limit.quota)
    assert lines["X-RateLimit-Remaining"] in {str(one.remaining) for one in shown}
    assert re.fullmatch(r"\d{1,15}", lines["X-RateLimit-Reset"])
    reset = int(lines["X-RateLimit-Reset"]) * SECOND
    assert reset >= now
    soonest = min(now + one.reset_after_ns for one in shown)
    assert reset >= min(soonest, (10**15 - 1) * SECOND)


@examples(150)
@given(SCENES, OPTIONS, st.floats(0, 1))
def test_all_headers_parse_and_agree_with_the_decisions(
    scene: Scene, options: ResponseOptions, jitter: float
) -> None:
    now = scene.clock()
    decision, shown = scene.ask()
    answer = Answer(decision.allowed, shown, jitter)
    lines = headers_for(answer, now_ns=now, options=options)
    assert len({name.lower() for name, _ in lines}) == len(lines)
    assert all(re.fullmatch(r"[!-~](?:[ -~]*[!-~])?", value) for _, value in lines)
    _check_fields(dict(lines), answer)
    _check_tightest(dict(lines), answer, now)


@examples(300)
@given(SCENES, OPTIONS, st.floats(0, 1))
def test_who_waits_as_long_as_told_is_admitted(
    scene: Scene, options: ResponseOptions, jitter: float
) -> None:
    decision, shown = scene.ask()
    answer = Answer(decision.allowed, shown, jitter)
    lines = dict(headers_for(answer, now_ns=scene.clock(), options=options))
    if decision.allowed or decision.retry_after_ns is None or "Retry-After" not in lines:
        assert "Retry-After" not in lines
        return
    wait, pushback = int(lines["Retry-After"]), grpc_status(answer, options=options).pushback_ms
    assert wait >= 1
    assert wait * SECOND >= min(decision.retry_after_ns, (10**15 - 1) * SECOND)
    assert pushback is not None
    if wait < 10**6:
        scene.clock.advance_ns(pushback * SECOND // 1000)
        assert scene.ask()[0].allowed


class Look(NamedTuple):
    """At this time, what is left of *check* is more than *left*, or it is not."""

    at: int
    check: Check
    left: int
    is_more: bool


def _looks(scene: Scene, check: Check, decision: Decision) -> list[Look]:
    left = decision.remaining
    returns_in = limit_template("", decision.limit).returns_in_ns(decision)
    if returns_in is None:
        assert left == check.limit.quota or isinstance(check.limit, Concurrency)
        return []
    at = scene.clock() + returns_in
    looks = [Look(at, check, left, is_more=True)]
    if isinstance(check.limit, LeakyQueue):
        if left == check.limit.quota:  # somebody has its turn now, and there is room for all
            return []
        # The next place is there when the next turn is over, or somewhat earlier.
        unit_ns = int(SECOND / check.limit.per_second)
        if returns_in > unit_ns + 2:
            looks.append(Look(at - unit_ns - 3, check, left, is_more=False))
    if isinstance(check.limit, PacedLimit) and returns_in > 2:
        looks.append(Look(at - 3, check, left, is_more=False))
    return looks


@examples(150)
@given(SCENES)
def test_more_is_left_after_t_and_not_before(scene: Scene) -> None:
    _, shown = scene.ask()
    checks = [check for each in scene.checks for check in each]
    decisions = [decision for rule in shown for _, decision in rule.limits]
    pairs = zip(checks, decisions, strict=True)
    looks = sorted(
        (look for check, decision in pairs for look in _looks(scene, check, decision)),
        key=lambda look: look.at,
    )
    for look, left in zip(looks, scene.left([look[:2] for look in looks]), strict=True):
        assert (left > look.left) == look.is_more


@examples(150)
@given(SCENES, OPTIONS, st.sampled_from([None, "application/problem+json"]))
def test_a_refusal_tells_what_may_be_told(
    scene: Scene, options: ResponseOptions, accept: str | None
) -> None:
    decision, shown = scene.ask()
    if decision.allowed:
        return
    answer = Answer(allowed=False, rules=shown)
    whole = response_for(answer, now_ns=scene.clock(), options=options, accept=accept)
    body = json.loads(whole.body)
    assert whole.status == 429
    assert body.get("status", 429) == 429
    assert dict(whole.headers)["Cache-Control"] == "no-store"
    wait = _number(dict(whole.headers).get("Retry-After"))
    assert body.get("retry_after") in (wait, None)
    assert "limit" not in body or body.get("retry_after") == wait
    if body.get("retry_after", 10**9) < 10**9:
        assert body["retry_after"] == -(-body["retry_after_ms"] // 1000)
    hidden = [rule.name for rule in shown if rule.headers in ("off", "redacted")]
    text = whole.body.decode() + repr(whole.headers)
    assert not any(name in text for name in hidden)
    if len(hidden) == len(shown):
        assert not re.search(r"\d", whole.body.decode().replace("429", ""))
    if all(rule.headers == "redacted" for rule in shown):
        assert wait is None


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


@dataclass(frozen=True)
class Lines:
    """Headers as any server may send them."""

    existing: list[tuple[str, str]]


ANY_TEXT = st.text(st.sampled_from('ab"\\,; =/*.0159+q'), max_size=40) | st.text(max_size=20)
NAMES = st.sampled_from(["RateLimit", "ratelimit-policy", "X-RateLimit-Limit", "Vary"])


@examples(200)
@given(st.builds(Lines, st.lists(st.tuples(NAMES, ANY_TEXT), max_size=5)))
def test_merging_twice_is_merging_once_whatever_was_there(lines: Lines) -> None:
    ours = [("X-RateLimit-Limit", "9"), ("RateLimit", '"a";r=1'), ("RateLimit-Policy", '"a";q=9')]
    once = merged(lines.existing, ours)
    assert merged(once, ours) == once
    assert once[-3:] == ours
    assert [value for name, value in once if name == "Vary"] == [
        value for name, value in lines.existing if name == "Vary"
    ]


@examples(200)
@given(ANY_TEXT)
def test_any_accept_header_has_an_answer(text: str) -> None:
    assert prefers_problem(f"application/problem+json, {text}") in (True, False)
    assert prefers_problem(text) in (True, False)
