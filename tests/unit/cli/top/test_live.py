"""An answer is read as far as it makes sense."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cli.top.live import read_live
from tests.examples import example_count
from tests.support.live_answers import answer, candidate, key, rule

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(list(answer(rule("a"))))


def test_all_that_is_shown_is_read() -> None:
    live = read_live(
        answer(
            rule("a", allowed=8, denied=2),
            busiest_keys=[key("a", "ip=~1", 3)],
            candidates=[candidate("b", candidate_of="a", newly_denied=300, newly_allowed=5)],
        )
    )
    assert (live.revision, live.workers, live.p99) == (7, 2, 0.0014)
    (one,) = live.rules
    assert (one.allowed_rate, one.denied_rate, one.denied_share) == (8, 2, 0.2)
    assert (len(one.allowed), one.denied[-1]) == (120, 2)
    assert live.busiest[0].key == "ip=~1"
    assert (live.candidates[0].newly_denied, live.candidates[0].newly_allowed) == (300, 5)
    assert live.is_well


def test_a_rule_in_shadow_counts_what_it_would_have_allowed_as_traffic() -> None:
    rates = {"shadow_allowed": 3, "shadow_denied": 1}
    (one,) = read_live(answer(rule("a", mode="shadow", per_second=rates))).rules
    assert (one.allowed_rate, one.denied_rate, one.shadow_rate, one.denied_share) == (3, 0, 1, 0.25)


def test_troubles_of_the_policy_are_told_in_words() -> None:
    def troubles(**policy: object) -> tuple[str, ...]:
        return read_live({"policy": policy}).policy_troubles

    assert troubles(trouble="etcd is gone", stale=True) == ("etcd is gone",)
    assert troubles(stale=True) == ("the rules in force are stale",)
    assert troubles(current=False) == ("the rules in force may not be the newest",)
    assert troubles(problems=2) == ("a newer policy has 2 problems: not in force",)
    assert troubles(current=True, stale=False, trouble=None) == ()


def test_a_store_that_fails_is_no_good_sign() -> None:
    assert not read_live({"store": {"state": "open"}}).is_well
    assert not read_live({"store": {"state": "ok", "trouble": ["slow"]}}).is_well


@settings(max_examples=example_count(50), deadline=None)
@given(st.dictionaries(FIELDS | st.text(), JSON))
def test_nothing_that_is_answered_breaks_it(data: dict[str, object]) -> None:
    live = read_live(data)
    assert live.raw is data
    assert live.workers >= 0
