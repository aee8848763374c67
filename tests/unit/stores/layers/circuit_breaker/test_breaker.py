"""The state machine, on the clock and with the random numbers of the test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.errors import OptionError
from headgate.stores.layers.circuit_breaker.breaker import SLICE_NS, BreakerOptions
from headgate.units import MILLISECOND, SECOND
from tests.support.circuit_breaker import OPTIONS, Tried


class TestClosed:
    def test_it_opens_after_so_many_failures_in_a_row(self) -> None:
        tried = Tried()
        for _ in range(OPTIONS.failures - 1):
            tried.fail()
        assert tried.breaker.is_closed
        tried.fail()
        assert tried.breaker.state == "open"
        assert tried.request() is None

    def test_a_success_restarts_the_count(self) -> None:
        tried = Tried(replace(OPTIONS, least_calls=10**6))
        for _ in range(10):
            for _ in range(OPTIONS.failures - 1):
                tried.fail()
            tried.succeed()
        assert tried.breaker.is_closed

    def test_calls_that_fail_together_are_one_incident(self) -> None:
        tried = Tried()
        tickets = [tried.request() for _ in range(500)]
        for ticket in tickets:
            tried.fail(ticket)
        assert tried.breaker.is_closed
        assert (tried.breaker.failures, tried.breaker.failed_calls) == (1, 500)

    def test_it_opens_when_half_of_many_calls_fail_though_others_succeed(self) -> None:
        tried = Tried()
        for _ in range(OPTIONS.least_calls // 2 - 1):
            tried.wait(10 * MILLISECOND)
            tried.fail()
            tried.succeed()
        assert tried.breaker.is_closed
        tried.succeed()
        tried.fail()
        assert tried.breaker.state == "open"

    def test_a_small_share_of_failures_opens_nothing(self) -> None:
        tried = Tried()
        for _ in range(500):
            tried.wait(MILLISECOND)
            tried.fail()
            for _ in range(3):
                tried.succeed()
        assert tried.breaker.is_closed

    def test_failures_far_apart_are_no_share(self) -> None:
        tried = Tried()
        for _ in range(100):
            tried.wait(OPTIONS.window_ns + 1)
            tried.fail()
            tried.succeed()
        assert tried.breaker.is_closed


class TestOpen:
    def test_the_pause_grows_to_its_longest_and_is_cut_by_chance(self) -> None:
        tried = Tried()
        tried.open()
        pauses = []
        for _ in range(8):
            tried.wait()
            tried.fail(chance=1.0)
            pauses.append(tried.changes[-1].lasts_ns)
        first = OPTIONS.first_pause_ns
        assert pauses[:3] == [2 * first, 4 * first, 8 * first]
        assert pauses[-1] == OPTIONS.longest_pause_ns
        tried.wait()
        tried.fail(chance=0.0)
        assert tried.changes[-1].lasts_ns == OPTIONS.longest_pause_ns // 2

    def test_nothing_passes_before_the_pause_is_over(self) -> None:
        tried = Tried()
        tried.open()
        tried.wait(tried.breaker.wait_ns(tried.now_ns) - 1)
        assert tried.request(0.0) is None
        tried.wait(1)
        assert tried.request(0.0) is not None

    def test_calls_in_flight_when_it_opened_change_nothing(self) -> None:
        tried = Tried()
        early = tried.request()
        assert early is not None
        tried.open()
        before = len(tried.changes)
        tried.succeed(early)
        tried.fail(early)
        assert tried.breaker.state == "open"
        assert len(tried.changes) == before


class TestHalfOpen:
    def test_there_is_one_probe_at_a_time(self) -> None:
        tried = Tried()
        tried.open()
        tried.wait()
        assert tried.request() is not None
        assert [tried.request(0.0) for _ in range(100)] == [None] * 100

    def test_a_probe_that_fails_opens_it_again(self) -> None:
        tried = Tried()
        tried.open()
        tried.wait()
        tried.fail()
        assert tried.states == ["open", "half_open", "open"]

    def test_a_probe_that_was_given_up_is_followed_by_another_at_once(self) -> None:
        tried = Tried()
        tried.open()
        tried.wait()
        probe = tried.request()
        assert probe is not None
        tried.breaker.abandoned(probe, tried.now_ns)
        assert tried.request() is not None
        assert tried.request() is None

    def test_a_probe_that_never_comes_back_is_taken_for_lost(self) -> None:
        tried = Tried()
        tried.open()
        tried.wait()
        lost = tried.request()
        assert lost is not None
        tried.wait(OPTIONS.probe_ns)
        probe = tried.request()
        assert probe is not None
        tried.fail(lost)
        tried.succeed(probe)
        assert tried.states == ["open", "half_open", "ramping"]


class TestRamp:
    def test_the_share_grows_to_all(self) -> None:
        tried = Tried()
        tried.ramp()
        lasts_ns = tried.changes[-1].lasts_ns
        assert lasts_ns is not None
        start_ns, shares = tried.now_ns, []
        for step in range(101):
            tried.now_ns = start_ns + lasts_ns * step // 100
            shares.append(tried.breaker.share(tried.now_ns))
        assert shares[0] == OPTIONS.first_share
        assert shares == sorted(shares)
        assert shares[-1] == 1.0

    def test_the_first_calls_pass_whatever_chance_says(self) -> None:
        tried = Tried()
        tried.ramp()
        passed = [tried.request(0.999) is not None for _ in range(OPTIONS.first_calls + 5)]
        assert passed == [True] * OPTIONS.first_calls + [False] * 5

    def test_of_the_others_as_many_pass_as_the_share_says(self) -> None:
        tried = Tried(replace(OPTIONS, first_calls=0))
        tried.ramp()
        share = tried.breaker.share(tried.now_ns)
        assert tried.request(share - 0.001) is not None
        assert tried.request(share) is None

    def test_in_every_slice_some_calls_pass_whatever_chance_says(self) -> None:
        tried = Tried()
        tried.open()
        tried.wait(OPTIONS.ramp_ns)
        tried.succeed()
        for _ in range(5):
            passed = [tried.request(0.999) is not None for _ in range(OPTIONS.first_calls + 5)]
            assert passed == [True] * OPTIONS.first_calls + [False] * 5
            tried.wait(SLICE_NS)

    @pytest.mark.parametrize("down_ns", [OPTIONS.first_pause_ns, OPTIONS.ramp_ns, 60 * SECOND])
    def test_it_lasts_as_long_as_the_outage_up_to_a_bound_give_or_take_a_third(
        self, down_ns: int
    ) -> None:
        lengths = []
        for chance in (0.0, 1.0):
            tried = Tried()
            tried.open()
            tried.wait(down_ns)
            tried.succeed(chance=chance)
            lengths.append(tried.changes[-1].lasts_ns)
        longest_ns = min(down_ns, OPTIONS.ramp_ns)
        assert lengths == [round(longest_ns * 2 / 3), round(longest_ns * 4 / 3)]

    def test_it_closes_with_the_first_call_after_it(self) -> None:
        tried = Tried()
        tried.ramp()
        tried.wait(2 * OPTIONS.ramp_ns)
        assert tried.request(0.999) is not None
        assert tried.breaker.is_closed
        assert tried.breaker.since_ns is None

    def test_one_failure_opens_it_again_with_a_longer_pause(self) -> None:
        tried = Tried()
        tried.ramp()
        tried.fail(chance=1.0)
        assert tried.states == ["open", "half_open", "ramping", "open"]
        assert tried.changes[-1].lasts_ns == 2 * OPTIONS.first_pause_ns

    def test_once_it_was_closed_the_pauses_restart(self) -> None:
        tried = Tried()
        tried.ramp()
        tried.fail()
        tried.wait()
        tried.succeed()
        tried.wait(2 * OPTIONS.ramp_ns)
        tried.succeed()
        tried.open()
        assert tried.changes[-1].lasts_ns == OPTIONS.first_pause_ns * 3 // 4

    def test_calls_of_the_ramp_that_fail_together_open_it_once(self) -> None:
        tried = Tried()
        tried.ramp()
        tickets = [tried.request(0.0) for _ in range(20)]
        for ticket in tickets:
            tried.fail(ticket)
        assert tried.states.count("open") == 2


class TestChanges:
    def test_a_change_has_the_calls_so_far(self) -> None:
        tried = Tried()
        for _ in range(7):
            tried.succeed()
        tried.open()
        for _ in range(4):
            tried.request()
        tried.wait()
        tried.succeed()
        opened, probing, ramping = tried.changes
        assert opened.counts == (10, 3, 0)
        assert probing.counts == (10, 3, 4)
        assert ramping.counts == (11, 3, 4)
        assert opened.reason == "timeout"
        assert opened.lasts_ns == probing.down_ns

    def test_it_knows_since_when_the_store_has_failed(self) -> None:
        tried = Tried()
        tried.open()
        since_ns = tried.now_ns
        for _ in range(3):
            tried.wait()
            tried.fail()
        assert tried.breaker.since_ns == since_ns

    def test_after_a_fork_it_is_closed(self) -> None:
        tried = Tried()
        probe = tried.request()
        tried.open()
        tried.breaker.after_fork()
        assert tried.breaker.is_closed
        assert tried.breaker.since_ns is None
        assert probe is not None
        tried.fail(probe)
        assert tried.breaker.failures == 0


class TestOptions:
    @pytest.mark.parametrize(
        "wrong",
        [
            {"failures": 0},
            {"share": 0.0},
            {"share": 1.1},
            {"first_share": 0.0},
            {"least_calls": 0},
            {"window_ns": 0},
            {"first_pause_ns": 0},
            {"longest_pause_ns": 1},
            {"ramp_ns": -1},
            {"first_calls": -1},
            {"probe_ns": 0},
        ],
    )
    def test_invalid_ones_raise(self, wrong: dict[str, float]) -> None:
        with pytest.raises(OptionError, match=next(iter(wrong))):
            BreakerOptions(**wrong)  # type: ignore[arg-type] # that is what is tried

    def test_without_a_ramp_it_closes_at_the_next_call(self) -> None:
        tried = Tried(replace(OPTIONS, ramp_ns=0))
        tried.ramp()
        assert tried.request(0.999) is not None
        assert tried.breaker.is_closed
