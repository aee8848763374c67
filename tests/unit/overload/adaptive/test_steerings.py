"""What everything that moves a limit promises, whatever it is told."""

import math
from collections.abc import Callable
from statistics import mean

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.errors import OptionError
from headgate.overload import AIMD, Gradient, Lowest, Signal, Steering
from headgate.overload.adaptive import Probe, steering_of
from headgate.policy.model import AdaptiveSlots
from tests.examples import example_count
from tests.support.closed_loop import SERVICE, ClosedLoop

MAKES: list[Callable[..., Steering]] = [
    Gradient,
    lambda **bounds: AIMD(target=3 * SERVICE, **bounds),
]
IDS = ["gradient", "aimd"]

END = st.tuples(
    st.integers(0, 200),
    st.sampled_from([math.nan, math.inf, -1, 0, 1, 10**6, 10**8, 10**9, 10**20]),
    st.booleans(),
)


@pytest.mark.parametrize("make", MAKES, ids=IDS)
@given(
    ends=st.lists(st.tuples(END, st.integers(1, 60)), max_size=20),
    least=st.integers(1, 30),
    span=st.integers(0, 100),
)
@example(ends=[((1, math.nan, True), 60)], least=1, span=0)
@example(ends=[((1, 0, True), 60), ((1, 10**20, False), 60)], least=1, span=5)
@settings(max_examples=example_count(100), deadline=None)
def test_the_limit_stays_within_its_bounds(
    make: Callable[..., Steering],
    ends: list[tuple[tuple[int, float, bool], int]],
    least: int,
    span: int,
) -> None:
    steering = make(initial=least, least=least, most=least + span)
    for (in_flight, latency_ns, succeeded), times in ends:
        for _ in range(times):
            steering.observe(in_flight=in_flight, latency_ns=latency_ns, succeeded=succeeded)  # type: ignore[arg-type]  # on purpose: a clock that says nonsense
            assert least <= steering.limit <= least + span


@pytest.mark.parametrize("make", MAKES, ids=IDS)
@pytest.mark.parametrize("initial", [1, 20, 60])
def test_it_finds_the_knee_of_a_backend_wherever_it_starts(
    make: Callable[..., Steering], initial: int
) -> None:
    loop = ClosedLoop(make(initial=initial), seed=initial)
    loop.run(30)
    limits = loop.run(30)
    assert 15 < mean(limits) < 50  # 20 workers, and some that wait for one
    assert len(limits) > 0.9 * 30 * 20 / SERVICE  # of what the workers can do


@pytest.mark.parametrize("make", MAKES, ids=IDS)
def test_it_follows_a_backend_that_loses_half_of_its_workers_and_gets_them_back(
    make: Callable[..., Steering],
) -> None:
    loop = ClosedLoop(make(), seed=2)
    before = mean(loop.run(30))
    loop.workers = 10
    loop.run(10)
    meanwhile = mean(loop.run(20))
    loop.workers = 20
    loop.run(10)
    after = mean(loop.run(20))
    assert meanwhile < 0.7 * before
    assert 0.8 * before < after < 1.25 * before


@pytest.mark.parametrize("make", MAKES, ids=IDS)
def test_a_limit_that_is_not_used_does_not_grow(make: Callable[..., Steering]) -> None:
    steering = make(initial=50)
    ClosedLoop(steering, seed=3).run(30, demand=lambda: 10)
    assert steering.limit == 50


@pytest.mark.parametrize("make", MAKES, ids=IDS)
def test_a_few_errors_in_an_idle_night_do_not_lower_it(make: Callable[..., Steering]) -> None:
    steering = make(initial=50)
    for number in range(10_000):
        steering.observe(in_flight=2, latency_ns=10**8, succeeded=number % 50 > 0)
    assert steering.limit == 50


@pytest.mark.parametrize("make", MAKES, ids=IDS)
def test_a_backend_that_fails_everything_is_left_with_the_least(
    make: Callable[..., Steering],
) -> None:
    steering = make(initial=100, least=3)
    for _ in range(5_000):
        steering.observe(in_flight=steering.limit, latency_ns=10**6, succeeded=False)
    assert steering.limit == 3


@pytest.mark.parametrize("make", MAKES, ids=IDS)
def test_a_limit_far_above_what_is_used_is_lowered_when_most_requests_fail(
    make: Callable[..., Steering],
) -> None:
    steering = make(initial=200)
    for _ in range(5_000):
        in_flight = min(60, steering.limit)
        steering.observe(in_flight=in_flight, latency_ns=10**9, succeeded=False)
    assert steering.limit < 60


@pytest.mark.parametrize("make", MAKES, ids=IDS)
def test_a_limit_far_above_what_is_used_is_lowered_when_requests_become_very_slow(
    make: Callable[..., Steering],
) -> None:
    steering = make(initial=200)
    for number in range(4_000):
        in_flight = min(60, steering.limit)
        slow = number > 1_000
        steering.observe(in_flight=in_flight, latency_ns=10**9 if slow else 10**8, succeeded=True)
    assert steering.limit < 60


@pytest.mark.parametrize("make", MAKES, ids=IDS)
def test_it_comes_back_from_a_limit_of_one(make: Callable[..., Steering]) -> None:
    loop = ClosedLoop(make(initial=1), seed=4)
    loop.run(60)
    assert loop.steering.limit > 15


@pytest.mark.parametrize("make", MAKES, ids=IDS)
def test_one_outlier_changes_little(make: Callable[..., Steering]) -> None:
    steering = make(initial=20)
    for _ in range(100):
        steering.observe(in_flight=20, latency_ns=10**8, succeeded=True)
    before = steering.limit
    steering.observe(in_flight=20, latency_ns=10**12, succeeded=True)
    for _ in range(80):
        steering.observe(in_flight=20, latency_ns=10**8, succeeded=True)
        assert steering.limit >= 0.95 * before


def test_aimd_answers_a_burst_of_failures_once() -> None:
    steering = AIMD(initial=100)
    for _ in range(100):  # all that were in when the backend broke down
        steering.observe(in_flight=100, latency_ns=10**9, succeeded=False)
    assert steering.limit == 90
    steering.observe(in_flight=90, latency_ns=10**9, succeeded=False)
    assert steering.limit == 81


def test_aimd_grows_by_one_in_a_round_that_used_it() -> None:
    steering = AIMD(initial=30)
    for _ in range(30):
        assert steering.limit == 30
        steering.observe(in_flight=30, latency_ns=1, succeeded=True)
    assert steering.limit == 31


def test_aimd_bears_a_tenth_that_is_late() -> None:
    steering = AIMD(initial=20, target=0.1)
    for number in range(20):
        late = number < 2
        steering.observe(in_flight=20, latency_ns=10**9 if late else 10**7, succeeded=True)
    assert steering.limit == 21
    for _ in range(3):
        steering.observe(in_flight=21, latency_ns=10**9, succeeded=True)
    assert steering.limit == 18


def test_gradient_bears_a_few_failures() -> None:
    """One in a hundred is no reason to give up capacity."""
    loop = ClosedLoop(Gradient(), seed=9, timeout=0.55)
    limits = loop.run(60)
    assert mean(limits) > 18


def test_gradient_falls_by_the_share_that_failed() -> None:
    one, half = Gradient(initial=100), Gradient(initial=100)
    for number in range(100):
        one.observe(in_flight=100, latency_ns=10**8, succeeded=number > 0)
        half.observe(in_flight=100, latency_ns=10**8, succeeded=number % 2 == 0)
    assert one.limit == 100  # grown by two, and one in a hundred less
    assert half.limit == 51


def test_gradient_learns_at_its_lowest_limit_where_nothing_lower_can_be_tried() -> None:
    steering = Gradient(initial=10, least=10, most=10)
    for number in range(3_000):
        latency_ns = 10**8 if number < 100 else 3 * 10**8
        steering.observe(in_flight=10, latency_ns=latency_ns, succeeded=True)
    assert steering.usual is not None
    assert steering.usual > 0.25


def test_gradient_soon_forgets_a_usual_latency_that_was_far_too_high() -> None:
    steering = Gradient(initial=10, most=10, probe=10**6)
    for number in range(1_000):
        latency_ns = 10**9 if number < 200 else 10**8
        steering.observe(in_flight=10, latency_ns=latency_ns, succeeded=True)
    assert steering.usual is not None
    assert steering.usual < 0.25


def test_gradient_gives_up_a_probe_in_which_the_backend_breaks_down() -> None:
    steering = Gradient(initial=40, probe=1)
    for _ in range(40):
        steering.observe(in_flight=40, latency_ns=10**8, succeeded=True)
    for _ in range(60):
        steering.observe(in_flight=20, latency_ns=10**8, succeeded=False)
    assert steering.limit < 12


def test_a_probe_leaves_out_those_who_end_first() -> None:
    probe = Probe(limit=20, instead_of=40)
    for number in range(40):
        assert not probe.has_ended
        probe.observe(20, 1.0 if number < 20 else 3.0)
    assert probe.has_ended
    assert probe.found_ns == 3.0


def test_gradient_loses_little_to_its_probes() -> None:
    with_probes, without = (
        len(ClosedLoop(Gradient(probe=probe), seed=10).run(150)) for probe in (100, 10**9)
    )
    assert with_probes > 0.97 * without


def test_gradient_does_not_learn_overload_as_normal() -> None:
    loop = ClosedLoop(Gradient(), seed=5)
    loop.run(300)
    limits = loop.run(60)
    assert mean(limits) < 50


def test_gradient_learns_that_a_backend_has_become_slower_for_good() -> None:
    loop = ClosedLoop(Gradient(), seed=6)
    loop.run(30)
    loop.slowness = 3.0
    loop.run(120)
    done = len(loop.run(60))
    assert done > 0.85 * 60 * 20 / (3 * SERVICE)


def test_gradient_recovers_what_is_usual_if_it_began_in_an_overload() -> None:
    steering = Gradient(initial=100)
    loop = ClosedLoop(steering, seed=7, timeout=60)
    loop.run(400)
    assert mean(loop.run(60)) < 50
    assert steering.usual is not None
    assert steering.usual < 1.5 * SERVICE


def test_gradient_keeps_latency_below_a_target() -> None:
    loop = ClosedLoop(Gradient(tolerance=10, target=1.5 * SERVICE), seed=8)
    loop.run(30)
    assert mean(loop.run(30)) < 40


def test_gradient_gives_up_a_probe_in_which_nobody_is_let_in() -> None:
    steering = Gradient(initial=40, probe=1)
    for _ in range(40):
        steering.observe(in_flight=40, latency_ns=10**8, succeeded=True)
    assert steering.limit < 30
    limits = set()
    for _ in range(300):  # they were all in before
        steering.observe(in_flight=40, latency_ns=10**8, succeeded=True)
        limits.add(steering.limit)
    assert max(limits) >= 40


def test_a_signal_holds_a_number_at_its_target() -> None:
    signal = Signal(0.8, initial=10)
    for _ in range(200):
        signal.observe(in_flight=signal.limit, latency_ns=1, succeeded=True)
        signal.update(signal.limit / 50)  # 40 in at once make it 0.8
    assert 36 <= signal.limit <= 46


def test_a_signal_that_is_no_number_changes_nothing() -> None:
    signal = Signal(0.8, initial=10)
    signal.observe(in_flight=10, latency_ns=1, succeeded=True)
    signal.update(math.nan)
    assert signal.limit == 10
    signal.update(math.inf)
    assert signal.limit == 9


def test_a_signal_also_counts_while_all_requests_hang() -> None:
    signal = Signal(0.8, initial=100)
    signal.observe(in_flight=100, latency_ns=1, succeeded=True)
    for _ in range(50):
        signal.update(1.0)
    assert signal.limit < 60


def test_the_lowest_of_several_counts() -> None:
    one, two = AIMD(initial=30), Signal(0.8, initial=20)
    both = Lowest(one, two)
    assert both.limit == 20
    for _ in range(1_000):
        both.observe(in_flight=both.limit, latency_ns=1, succeeded=True)
    assert one.limit == 30  # it is not what keeps others out
    for _ in range(100):
        both.observe(in_flight=20, latency_ns=1, succeeded=False)
    assert both.limit < 20


def test_the_rules_say_which_one() -> None:
    gradient = steering_of(AdaptiveSlots("gradient", least=5, most=9))
    aimd = steering_of(AdaptiveSlots("aimd", target_ns=10**8))
    assert isinstance(gradient, Gradient)
    assert gradient.limit == 9
    assert isinstance(aimd, AIMD)
    for _ in range(20):
        aimd.observe(in_flight=20, latency_ns=2 * 10**8, succeeded=True)
    assert aimd.limit < 20


@pytest.mark.parametrize(
    "make",
    [
        lambda: AIMD(least=0),
        lambda: AIMD(least=5, most=4),
        lambda: AIMD(initial=5, most=4),
        lambda: AIMD(initial=True),
        lambda: AIMD(backoff=1),
        lambda: AIMD(backoff=math.nan),
        lambda: Gradient(tolerance=0.9),
        lambda: Gradient(tolerance=math.nan),
        lambda: Gradient(room=0),
        lambda: Gradient(probe=0),
        lambda: Signal(0),
        lambda: Signal(math.nan),
        Lowest,
    ],
)
def test_numbers_that_make_no_sense_are_refused(make: Callable[[], Steering]) -> None:
    with pytest.raises(OptionError, match=r"expected|below|nothing"):
        make()
