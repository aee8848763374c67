"""The figures of a service are read as far as they make sense."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cli.top.figures import read_live
from tests.examples import example_count
from tests.support.live_answers import answer, candidate, key, rule

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(list(answer(rule("a"))))


def test_all_figures_are_read() -> None:
    live = read_live(
        answer(
            rule("a", allowed=8, denied=2),
            busiest_keys=[key("a", "ip=~1", 3)],
            candidates=[candidate("b", candidate_of="a", newly_denied=300, newly_allowed=5)],
        )
    )
    assert (live.policy.revision, live.workers, live.latency.p99) == (7, 2, 0.0014)
    (one,) = live.rules
    assert (one.allowed, one.allowed_rate, one.denied_rate, one.denied_share) == (800, 8, 2, 0.2)
    assert live.busiest_keys[0].key == "ip=~1"
    assert (live.candidates[0].newly_denied, live.candidates[0].newly_allowed) == (300, 5)
    assert live.is_healthy


def test_a_shadow_rule_counts_all_its_decisions_as_traffic() -> None:
    rates = {"shadow_allowed": 3, "shadow_denied": 1}
    (one,) = read_live(answer(rule("a", mode="shadow", per_second=rates))).rules
    assert (one.allowed_rate, one.denied_rate, one.shadow_rate, one.denied_share) == (3, 0, 1, 0.25)


def test_troubles_of_the_policy_are_put_into_words() -> None:
    def troubles(**policy: object) -> list[str]:
        return read_live({"policy": policy}).troubles()

    assert troubles(trouble="etcd is gone", stale=True) == ["etcd is gone"]
    assert troubles(stale=True) == ["The active policy is stale."]
    assert troubles(current=False) == ["The active policy may not be the newest."]
    assert troubles(problems=2) == ["A newer policy has 2 problems and is not active."]
    assert troubles(current=True, stale=False, trouble=None) == []


def test_a_failing_store_is_unhealthy() -> None:
    assert not read_live({"store": {"state": "open"}}).is_healthy
    assert not read_live({"store": {"state": "ok", "trouble": ["slow"]}}).is_healthy


@settings(max_examples=example_count(50), deadline=None)
@given(st.dictionaries(FIELDS | st.text(), JSON))
def test_no_response_breaks_it(data: dict[str, object]) -> None:
    assert read_live(data).workers >= 0
