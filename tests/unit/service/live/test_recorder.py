"""The journal as points, looked at once a second or less often."""

from __future__ import annotations

from headgate.observability import DecisionRecorder
from headgate.service.live.recorder import LATENCIES, MINUTE, OUTAGE, SAMPLED, WHOLE, Recorder
from headgate.units import MILLISECOND, SECOND

BEGAN = 6_000_000 * MINUTE
"""The first second of a minute."""


class Observed:
    """A journal, and who looks at it."""

    def __init__(self, former: Observed | None = None) -> None:
        self.journal = DecisionRecorder()
        self.recorder = Recorder(self.journal)
        if former is not None:
            self.recorder.seconds = former.recorder.seconds
            self.recorder.minutes = former.recorder.minutes
        else:
            self.sample(BEGAN)

    def sample(self, second: float) -> None:
        self.recorder.sample(int(second * SECOND) + 2 * MILLISECOND)

    def say(self, times: int, rule: str = "a", source: str = "store") -> None:
        self.journal.cell(rule, "allowed", source)[0] += times

    def seconds(self, last: int = 5) -> list[int]:
        return self.recorder.seconds.lines["a", "allowed"].tolist()[-last:]

    def minutes(self, last: int = 3) -> list[int]:
        return self.recorder.minutes.lines["a", "allowed"].tolist()[-last:]


def test_what_is_counted_in_a_second_is_its_point() -> None:
    one = Observed()
    one.say(3)
    one.sample(BEGAN + 1)
    one.say(2)
    one.say(2, source="lease")
    one.sample(BEGAN + 2)
    assert one.recorder.seconds.end == BEGAN + 1
    assert one.seconds(3) == [0, 3, 4]


def test_whole_requests_have_points_of_their_own_whatever_the_rules() -> None:
    one = Observed()
    refused, admitted = one.journal.requests
    for rule in "abc":
        one.say(2, rule)
    admitted[0] += 2
    refused[0] += 1
    one.sample(BEGAN + 1)
    lines = one.recorder.seconds.lines
    assert lines[WHOLE, "allowed"].tolist()[-2:] == [0, 2]
    assert lines[WHOLE, "denied"].tolist()[-2:] == [0, 1]


def test_reports_of_gateways_are_a_flat_line_at_a_constant_rate() -> None:
    one = Observed()
    for second in range(15):
        if second % 5 == 0:
            one.say(250, source="gateway")
            one.journal.requests[True][0] += 250
            one.journal.reported[True] += 250
        one.say(1)
        one.journal.requests[True][0] += 1
        one.sample(BEGAN + second + 1)
    assert one.seconds(15) == [51] * 15
    assert one.recorder.seconds.lines[WHOLE, "allowed"].tolist()[-15:] == [51] * 15


def test_what_is_due_of_a_report_is_in_the_last_point_of_a_worker_that_ends() -> None:
    one = Observed()
    one.say(250, source="gateway")
    one.sample(BEGAN + 1)
    one.recorder.finish(int((BEGAN + 1.5) * SECOND))
    assert one.seconds(2) == [50, 200]


def test_an_outage_is_a_line_of_its_own() -> None:
    one = Observed()
    for second, is_out in enumerate((False, True, True, False), 1):
        one.recorder.is_out = is_out
        one.sample(BEGAN + second)
    assert one.recorder.seconds.lines[OUTAGE].tolist()[-4:] == [0, 1, 1, 0]


def test_recorded_seconds_and_latencies_are_lines_of_their_own() -> None:
    one = Observed()
    one.sample(BEGAN + 2)
    one.journal.time(3_000, count=4)
    one.sample(BEGAN + 3)
    lines = one.recorder.seconds.lines
    assert lines[SAMPLED].tolist()[-4:] == [0, 1, 1, 1]
    assert lines[LATENCIES[2]].tolist()[-2:] == [0, 4]  # from 2 to 5 microseconds


def test_what_was_counted_before_the_first_look_is_no_point() -> None:
    journal = DecisionRecorder()
    journal.cell("a", "allowed", "store")[0] += 100
    recorder = Recorder(journal)
    recorder.sample(BEGAN * SECOND)
    recorder.sample((BEGAN + 1) * SECOND)
    assert [*recorder.seconds.lines] == [SAMPLED]


def test_a_second_look_within_a_second_changes_nothing() -> None:
    one = Observed()
    one.say(3)
    one.sample(BEGAN + 1)
    one.say(5)
    one.sample(BEGAN + 1.5)
    assert one.seconds(2) == [0, 3]
    one.sample(BEGAN + 2)
    assert one.seconds(2) == [3, 5]


def test_a_late_look_spreads_what_was_counted_meanwhile() -> None:
    one = Observed()
    one.say(10)
    one.sample(BEGAN + 4)
    assert one.seconds() == [0, 3, 3, 2, 2]


def test_after_a_long_pause_it_is_spread_over_the_last_minute() -> None:
    one = Observed()
    one.say(60)
    one.sample(BEGAN + 1000)
    assert one.recorder.seconds.end == BEGAN + 999
    assert one.seconds(61) == [0] + [1] * 60


def test_a_clock_that_steps_back_starts_again_and_loses_no_count() -> None:
    one = Observed()
    one.say(3)
    one.sample(BEGAN + 1)
    one.say(4)
    one.sample(BEGAN - 3600)
    assert not one.recorder.seconds.lines
    one.sample(BEGAN - 3599)
    assert one.seconds(2) == [0, 4]


def test_minutes_are_the_sums_of_their_seconds() -> None:
    one = Observed()
    for second in range(1, 131):
        one.say(1 if second <= 60 else 2)
        one.sample(BEGAN + second)
    assert one.recorder.minutes.end == BEGAN // MINUTE + 1
    assert one.minutes() == [0, 60, 120]


def test_minutes_without_anything_are_zero() -> None:
    one = Observed()
    one.say(7)
    one.sample(BEGAN + 1)
    one.sample(BEGAN + 241)
    assert one.recorder.minutes.end == BEGAN // MINUTE + 3
    assert one.minutes(5) == [0, 7, 0, 0, 0]


def test_a_successor_goes_on_in_the_middle_of_a_minute() -> None:
    one = Observed()
    for second in range(1, 71):
        one.say(1)
        one.sample(BEGAN + second)
    other = Observed(one)
    other.sample(BEGAN + 75)
    for second in range(76, 121):
        other.say(2)
        other.sample(BEGAN + second)
    assert other.minutes(2) == [60, 10 + 2 * 45]
    assert other.seconds(51) == [1] + [0] * 5 + [2] * 45


def test_how_long_decisions_took_is_that_of_the_last_minute() -> None:
    one = Observed()
    one.journal.time(3_000)
    one.sample(BEGAN + 1)
    assert sum(one.recorder.latency.counts()) == 1
    for second in range(2, 61):
        one.sample(BEGAN + second)
    one.journal.time(3_000)
    one.journal.time(700)
    one.sample(BEGAN + 61)
    assert sum(one.recorder.latency.counts()) == 2
