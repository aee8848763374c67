"""A replay admits what the engine admits, request by request, whatever rules and traffic are."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.engine.request import Request
from headgate.policy.loader import read_policy_data
from headgate.policy.model import Policy
from headgate.rule_engine import RuleEngine
from headgate.simulator import Arrival, Event, Traffic, replay
from headgate.simulator.traffic import Given
from headgate.testing import ManualClock
from headgate.units import MILLISECOND, SECOND
from tests.examples import example_count

BEGAN_NS = 1_767_225_600 * SECOND
ALGORITHMS = (
    "token_bucket",
    "gcra",
    "fixed_window",
    "sliding_window_log",
    "sliding_window_counter",
    "leaky_bucket",
)
Refused = list[tuple[int, int | None]]


class Listening(Traffic):
    """Arrivals, and which of them were refused: their place, and when to come back."""

    retries_denied = True

    def __init__(self, arrivals: list[Arrival]) -> None:
        self._given = Given(arrivals)
        self._seen: dict[int, int] = {}
        self.heard: Refused = []

    def batches(self) -> Iterator[list[Event]]:
        place = 0
        for batch in self._given.batches():
            for event in batch:
                self._seen[id(event)] = place
                place += 1
            yield batch

    def deny(self, event: Event, retry_after_ns: int | None) -> None:
        self.heard.append((self._seen[id(event)], retry_after_ns))


def limits() -> st.SearchStrategy[str]:
    return st.builds(
        lambda quota, unit, algorithm: f"{quota}/{unit} {algorithm}",
        st.integers(1, 6),
        st.sampled_from(["100ms", "s", "2s"]),
        st.sampled_from(ALGORITHMS),
    )


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    rules: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 3))):
        rule: dict[str, Any] = {
            "id": f"rule-{number}",
            "key_by": draw(st.sampled_from(["api_key", "ip", "global", ["tenant", "endpoint"]])),
            "limit": "; ".join(draw(st.lists(limits(), min_size=1, max_size=2))),
            "mode": draw(st.sampled_from(["enforce", "enforce", "shadow"])),
        }
        if draw(st.booleans()):
            rule["match"] = {"endpoint": draw(st.sampled_from(["/a", "/b/*", "/**"]))}
        if draw(st.integers(0, 3)) == 0:
            rule["cost"] = {"header": "x-cost", "max": 5}
        if draw(st.integers(0, 3)) == 0:
            rule["idempotency"] = {"ttl": "1s"}
        rules.append(rule)
    return read_policy_data({"version": 1, "rules": rules})


@st.composite
def traffic(draw: st.DrawFn) -> list[Arrival]:
    names = st.sampled_from(["x", "y", "z"])
    gaps = st.sampled_from([0, 1, 10 * MILLISECOND, 333 * MILLISECOND, 2 * SECOND])
    at_ns, arrivals = BEGAN_NS, []
    for _ in range(draw(st.integers(1, 60))):
        at_ns += draw(gaps)
        headers = [("x-api-key", draw(names)), ("x-tenant-id", draw(names))]
        if draw(st.integers(0, 4)) == 0:
            headers.append(("x-cost", str(draw(st.integers(0, 7)))))
        if draw(st.integers(0, 4)) == 0:
            headers.append(("idempotency-key", draw(names)))
        path = draw(st.sampled_from(["/a", "/b/c", "/b"]))
        cost = draw(st.sampled_from([None, None, None, 0, 2, 9]))
        arrivals.append(Arrival(at_ns, "GET", path, tuple(headers), "192.0.2.1", cost))
    return arrivals


def by_the_engine(policy: Policy, arrivals: list[Arrival]) -> tuple[Refused, Counter[Any]]:
    """What the engine says to each request on a clock of its own."""
    clock = ManualClock()
    clock.advance_ns(arrivals[0].at_ns)
    engine = RuleEngine(policy, clock=clock)
    refused: Refused = []
    said: Counter[Any] = Counter()
    for place, one in enumerate(arrivals):
        clock.advance_ns(one.at_ns - clock())
        request = Request(one.method, one.path, "", one.headers, one.ip)
        verdict = engine.check(request, cost=one.cost)
        said.update((each.rule.id, each.decision.allowed) for each in verdict.rules)
        if not verdict:
            refused.append((place, verdict.retry_after_ns))
    return refused, said


@settings(max_examples=example_count(50), deadline=None)
@given(policies(), traffic())
def test_a_replay_is_the_engine_on_virtual_time(policy: Policy, arrivals: list[Arrival]) -> None:
    listening = Listening(arrivals)
    outcome = replay(policy, listening)
    refused, said = by_the_engine(policy, arrivals)
    assert listening.heard == refused
    assert (outcome.requests, outcome.denied) == (len(arrivals), len(refused))
    for one in outcome.rules:
        assert (one.allowed, one.denied) == (said[one.rule_id, True], said[one.rule_id, False])
