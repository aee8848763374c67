"""Several limits of one take decide as they do step by step."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.service.rls import RlsOptions
from headgate.testing import ManualClock
from tests.examples import example_count
from tests.support.rls_client import NOON, OK, OVER, Asker, desc
from tests.unit.service.rls.test_quick import slowed

LIMITS = (
    "10/minute",
    "7/3s",
    "1000/second burst 5",
    "20/minute leaky_bucket",
    "10/minute fixed_window",
    "10/minute sliding_window_log",
    "9/minute; 4/3s",
    "8/hour fixed_window; 10/minute",
)
rules = st.lists(
    st.tuples(
        st.sampled_from(LIMITS),
        st.sampled_from(["enforce", "enforce", "enforce", "shadow"]),
        st.sampled_from(["on", "on", "on", "brief", "off", "redacted"]),
        st.sampled_from(["u", "v"]),
    ),
    min_size=1,
    max_size=4,
)
steps = st.lists(
    st.tuples(
        st.integers(0, 6), st.floats(0, 40, allow_nan=False), st.sampled_from(["ada", "bob"])
    ),
    min_size=1,
    max_size=12,
)


def asking(several: list[tuple[str, str, str, str]], *, slowly: bool, headers: bool) -> Asker:
    lines = [
        f"  - {{id: r{n}, key_by: 'attribute:{key}', limit: '{limit}', mode: {mode},"
        f" headers: {told}}}\n"
        for n, (limit, mode, told, key) in enumerate(several)
    ]
    policy = "version: 1\nrules:\n" + "".join(lines)
    asker = Asker(policy, options=RlsOptions(headers=headers), clock=ManualClock(NOON + 0.25))
    if slowly:
        slowed(asker)
    return asker


def answers(asker: Asker, several: list[tuple[int, float, str]]) -> list[object]:
    told: list[object] = []
    for hits, wait, user in several:
        asker.clock.advance(wait)
        told.append(asker.ask("edge", desc(f"u={user}", "v=all"), hits=hits))
    return told


@settings(max_examples=example_count(100), deadline=None)
@given(rules, steps, st.booleans())
def test_one_take_decides_as_the_steps_do(
    several: list[tuple[str, str, str, str]],
    asked: list[tuple[int, float, str]],
    headers: bool,
) -> None:
    quick = answers(asking(several, slowly=False, headers=headers), asked)
    assert quick == answers(asking(several, slowly=True, headers=headers), asked)


TWO_AND_A_SHADOW = [
    ("2/minute", "enforce", "on", "u"),
    ("5/minute", "enforce", "on", "v"),
    ("1/minute", "shadow", "on", "u"),
]


def test_a_refusal_by_one_of_several_limits_charges_none_of_them() -> None:
    asker = asking(TWO_AND_A_SHADOW, slowly=False, headers=True)
    for _ in range(4):
        asker.ask("edge", desc("u=ada", "v=all"))
    assert asker.code("edge", desc("u=bob", "v=all")) == OK
    assert asker.code("edge", desc("u=bob", "v=all")) == OK
    assert asker.code("edge", desc("u=cy", "v=all")) == OK
    assert asker.code("edge", desc("u=cy", "v=all")) == OVER
