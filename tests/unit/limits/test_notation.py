"""The text notation: what it reads, and where it points when it cannot."""

from datetime import timedelta
from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest

from headgate.errors import LimitError, NotationError
from headgate.limits.model import (
    GCRA,
    LARGEST_QUOTA,
    Concurrency,
    DenyAll,
    FixedWindow,
    LeakyBucket,
    Limit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
    Unlimited,
)
from headgate.limits.notation import (
    LONGEST_NUMBER,
    LONGEST_TEXT,
    parse_limit,
    parse_limits,
)

WHOLE = "a whole number of at least 1"
NUMBER = "a number above 0"
UNIT = "a unit (ms, s, m, h, d, w, month or year)"
END = "the end of the limit"
ALGORITHM = (
    "an algorithm (token_bucket, gcra, leaky_bucket, "
    "fixed_window, sliding_window_log, sliding_window_counter)"
)
BURST = "'burst N'"
SUBWINDOWS = "'subwindows N'"
PEAK = "'peak N/unit for T'"
QUOTA = "a whole number from 1 to 999999999999999"
WINDOW = "a period from a microsecond to a hundred years"


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("100/minute", TokenBucket(100, Fraction(100, 60))),
        ("100/s burst 200", TokenBucket(200, 100)),
        ("100/s burst 20", TokenBucket(20, 100)),
        ("5 per 15 minutes", TokenBucket(5, Fraction(5, 900))),
        ("5 per minute token_bucket", TokenBucket(5, Fraction(5, 60))),
        ("10/30s", TokenBucket(10, Fraction(10, 30))),
        ("10 / 1.5 hours", TokenBucket(10, Fraction(10, 5400))),
        ("5 per 1.5 hours", TokenBucket(5, Fraction(5, 5400))),
        ("1/500ms", TokenBucket(1, 2)),
        ("10/0.5s", TokenBucket(10, 20)),
        ("1_000 / 1_0 s", TokenBucket(1000, 100)),
        ("007/s", TokenBucket(7, 7)),
        ("10/s gcra", GCRA(rate=10, burst=10)),
        ("10/s gcra burst 50", GCRA(rate=10, burst=50)),
        ("10/s leaky_bucket", LeakyBucket(10, 10)),
        ("10/s burst 50 leaky-bucket", LeakyBucket(50, 10)),
        ("5/minute fixed_window", FixedWindow(5, 60)),
        ("5/2w fixed-window", FixedWindow(5, timedelta(weeks=2))),
        ("5/minute sliding_window_log", SlidingWindowLog(5, 60)),
        ("5/0.25s sliding_window_log", SlidingWindowLog(5, 0.25)),
        ("5/0.001ms fixed_window", FixedWindow(5, timedelta(microseconds=1))),
        ("5/36525d fixed_window", FixedWindow(5, timedelta(days=36_525))),
        ("9/h sliding_window_counter", SlidingWindowCounter(9, 3600)),
        ("9/h sliding", SlidingWindowCounter(9, 3600)),
        ("9/h Sliding subwindows 6", SlidingWindowCounter(9, 3600, 6)),
        ("5/minute strict", SlidingWindowLog(5, 60)),
        ("5/month fixed_window", FixedWindow(5, timedelta(days=30))),
        ("5 per 2 mo fixed_window", FixedWindow(5, timedelta(days=60))),
        ("5/year fixed_window", FixedWindow(5, timedelta(days=365))),
        ("5 per 3 yrs fixed_window", FixedWindow(5, timedelta(days=1_095))),
        ("9/h Sliding-Window_Counter subwindows 6", SlidingWindowCounter(9, 3600, 6)),
        ("9/h subwindows 1_000 sliding_window_counter", SlidingWindowCounter(9, 3600, 1000)),
        ("  \t10\n/\r\ns  ", TokenBucket(10, 10)),
        ("10per 5s BURST 3", TokenBucket(3, 2)),
        ("10PER minute BURST 3 GCRA", GCRA(Fraction(10, 60), 3)),
        (f"{LARGEST_QUOTA}/s", TokenBucket(LARGEST_QUOTA, LARGEST_QUOTA)),
        ("0/minute", DenyAll()),
        ("  0 per 1.5 hours", DenyAll()),
        ("00/s", DenyAll()),
        *[(f"0/s {name}", DenyAll()) for name in ("gcra", "fixed_window", "strict", "sliding")],
        ("unlimited", Unlimited()),
        (" Unlimited ", Unlimited()),
        (f"{10**20}/w burst 3", TokenBucket(3, Fraction(10**20, 604_800))),
    ],
)
def test_a_text_says_a_limit(text: str, limit: Limit) -> None:
    assert parse_limit(text) == limit
    assert parse_limits(text) == (limit,)


@pytest.mark.parametrize(
    ("names", "milliseconds"),
    [
        ("ms msec msecs millisecond milliseconds", 1),
        ("s sec secs second seconds", 1_000),
        ("m min mins minute minutes", 60_000),
        ("h hr hrs hour hours", 3_600_000),
        ("d day days", 86_400_000),
        ("w week weeks", 604_800_000),
    ],
)
def test_a_unit_goes_by_many_names_in_any_case(names: str, milliseconds: int) -> None:
    once = FixedWindow(5, Fraction(milliseconds, 1_000))
    thrice = FixedWindow(5, Fraction(3 * milliseconds, 1_000))
    for name in names.split():
        for spelling in (name, name.upper(), name.capitalize()):
            assert parse_limit(f"5/{spelling} fixed_window") == once
            assert parse_limit(f"5 per {spelling} fixed_window") == once
            assert parse_limit(f"5/3{spelling} fixed_window") == thrice
            assert parse_limit(f"5 per 3 {spelling} fixed_window") == thrice


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        (("burst 7", "gcra"), GCRA(2, 7)),
        (("burst 7", "Token-Bucket"), TokenBucket(7, 2)),
        (("burst 7", "LEAKY_BUCKET"), LeakyBucket(7, 2)),
        (("subwindows 4", "sliding-window-counter"), SlidingWindowCounter(2, 1, 4)),
    ],
)
def test_options_may_come_in_any_order(options: tuple[str, ...], limit: Limit) -> None:
    for order in permutations(options):
        assert parse_limit(" ".join(["2/s", *order])) == limit


def test_decimals_are_read_exactly() -> None:
    limit = parse_limit("1/3.000000001s")
    assert isinstance(limit, TokenBucket)
    assert limit.per_second == 1 / Fraction("3.000000001")
    assert parse_limit("1/0.3s") == TokenBucket(1, Fraction(10, 3))


def test_several_limits_keep_their_order_and_may_repeat() -> None:
    assert parse_limits("10/s; 1000 per day fixed_window;10/1s") == (
        TokenBucket(10, 10),
        FixedWindow(1000, 86_400),
        TokenBucket(10, 10),
    )


def wrong(text: str) -> NotationError:
    """The error that *text* gives, whichever function reads it."""
    with pytest.raises(NotationError) as caught:
        parse_limits(text)
    if ";" not in text:
        with pytest.raises(NotationError) as alone:
            parse_limit(text)
        assert alone.value.args == caught.value.args
    assert caught.value.text == text
    return caught.value


@pytest.mark.parametrize(
    ("text", "position", "problem", "expected"),
    [
        # the number
        ("", 0, "there is no limit here", [WHOLE]),
        ("   ", 0, "there is no limit here", [WHOLE]),
        ("/s", 0, "'/' does not belong here", [WHOLE]),
        ("ten/s", 0, "'ten' does not belong here", [WHOLE]),
        ("0/s burst 5", 4, "a limit of 0 has no burst", ["no burst"]),
        ("0/s sliding subwindows 2", 12, "a limit of 0 has no subwindows", ["no subwindows"]),
        ("0/s peak 5/s for 3s", 4, "a limit of 0 has no peak", ["no peak"]),
        ("unlimited gcra", 10, "'gcra' does not belong to unlimited", ["the end of the limit"]),
        ("5/s; unlimited/s", 14, "'/' does not belong to unlimited", ["the end of the limit"]),
        ("-5/s", 0, "-5 is negative", [WHOLE]),
        ("1.5/s", 0, "1.5 is a fraction", [WHOLE]),
        ("5.0/s", 0, "5.0 is a fraction", [WHOLE]),
        ("+5/s", 0, "'+5' is not a number", [WHOLE]),
        ("1__0/s", 0, "'1__0' is not a number", [WHOLE]),
        ("10_/s", 0, "'10_' is not a number", [WHOLE]),
        ("1.2.3/s", 0, "'1.2.3' is not a number", [WHOLE]),
        ("\uff11\uff10/s", 0, "'\uff11' does not belong here", [WHOLE]),
        ("\u0663/s", 0, "'\u0663' does not belong here", [WHOLE]),
        # between number and period
        ("10", 2, "the limit ends too early", ["'/'", "'per'"]),
        ("10 ", 2, "the limit ends too early", ["'/'", "'per'"]),
        ("10 minute", 3, "'minute' does not belong here", ["'/'", "'per'"]),
        ("10 pre minute", 3, "'pre' does not belong here; did you mean 'per'?", ["'/'", "'per'"]),
        ("1,000/s", 1, "',' does not belong here", ["'/'", "'per'"]),
        ("1e3/s", 1, "'e3' does not belong here", ["'/'", "'per'"]),
        ("10 20/s", 3, "'20' does not belong here", ["'/'", "'per'"]),
        ("10\xa0/s", 2, "'\\xa0' does not belong here", ["'/'", "'per'"]),
        (str(Concurrency(5, 30)), 2, "'concurrent' does not belong here", ["'/'", "'per'"]),
        # the period
        ("10/", 3, "the limit ends too early", [NUMBER, UNIT]),
        ("10 per  ", 6, "the limit ends too early", [NUMBER, UNIT]),
        ("10//s", 3, "'/' does not belong here", [NUMBER, UNIT]),
        ("10/30", 5, "the limit ends too early", [UNIT]),
        ("10/0s", 3, "0 is no time at all", [NUMBER]),
        ("10/0.00 s", 3, "0.00 is no time at all", [NUMBER]),
        ("10/-3s", 3, "-3 is negative", [NUMBER]),
        ("10/.5s", 3, "'.5' is not a number", [NUMBER]),
        ("10/1.s", 3, "'1.' is not a number", [NUMBER]),
        ("10/mintue", 3, "'mintue' does not belong here; did you mean 'minute'?", [NUMBER, UNIT]),
        ("10/2 Weaks", 5, "'Weaks' does not belong here; did you mean 'weeks'?", [UNIT]),
        ("10/fortnight", 3, "'fortnight' does not belong here", [NUMBER, UNIT]),
        ("10/\u212aelvin", 3, "'\u212a' does not belong here", [NUMBER, UNIT]),
        ("10/s_", 3, "'s_' does not belong here; did you mean 's'?", [NUMBER, UNIT]),
        # the options
        ("10/s 5", 5, "'5' does not belong here", [BURST, SUBWINDOWS, PEAK, ALGORITHM, END]),
        ("10/s, gcra", 4, "',' does not belong here", [BURST, SUBWINDOWS, PEAK, ALGORITHM, END]),
        (
            "10/s brust 5",
            5,
            "'brust' does not belong here; did you mean 'burst'?",
            [BURST, SUBWINDOWS, PEAK, ALGORITHM, END],
        ),
        (
            "10/s token bucket",
            5,
            "'token' does not belong here; did you mean 'token_bucket'?",
            [BURST, SUBWINDOWS, PEAK, ALGORITHM, END],
        ),
        (
            "10/s burst 5 GRCA",
            13,
            "'GRCA' does not belong here; did you mean 'gcra'?",
            [SUBWINDOWS, PEAK, ALGORITHM, END],
        ),
        (
            "10/s algorithm",
            5,
            "'algorithm' does not belong here",
            [BURST, SUBWINDOWS, PEAK, ALGORITHM, END],
        ),
        ("10/s gcra each", 10, "'each' does not belong here", [BURST, PEAK, END]),
        ("10/s gcra fixed_windo", 10, "'fixed_windo' does not belong here", [BURST, PEAK, END]),
        ("10/s fixed_window x", 18, "'x' does not belong here", [END]),
        ("10/s sliding_window_counter x", 28, "'x' does not belong here", [SUBWINDOWS, END]),
        ("10/s gcra burst 5 x", 18, "'x' does not belong here", [PEAK, END]),
        ("10/s burst", 10, "the limit ends too early", [WHOLE]),
        ("10/s burst gcra", 11, "'gcra' does not belong here", [WHOLE]),
        ("10/s burst 0", 11, "0 is less than 1", [WHOLE]),
        ("10/s burst -1", 11, "-1 is negative", [WHOLE]),
        ("10/s burst 2.5", 11, "2.5 is a fraction", [WHOLE]),
        ("10/s sliding_window_counter subwindows 0", 39, "0 is less than 1", [WHOLE]),
        ("10/s burst 5 burst 5", 13, "this is a second burst", [SUBWINDOWS, PEAK, ALGORITHM, END]),
        ("10/s gcra GCRA", 10, "this is a second algorithm", [BURST, PEAK, END]),
        ("10/s gcra fixed-window", 10, "this is a second algorithm", [BURST, PEAK, END]),
        (
            "10/s subwindows 2 subwindows 3",
            18,
            "this is a second subwindows",
            [BURST, PEAK, ALGORITHM, END],
        ),
        # options that do not go together
        (
            "10/s fixed_window burst 5",
            18,
            "fixed_window has no burst: a window has none apart from its limit",
            ["no burst", "token_bucket", "gcra", "leaky_bucket"],
        ),
        (
            "10/s burst 5 Sliding-Window-Log",
            5,
            "sliding_window_log has no burst: a window has none apart from its limit",
            ["no burst", "token_bucket", "gcra", "leaky_bucket"],
        ),
        (
            "10/s sliding_window_counter subwindows 2 burst 5",
            41,
            "sliding_window_counter has no burst: a window has none apart from its limit",
            ["no burst", "token_bucket", "gcra", "leaky_bucket"],
        ),
        (
            "10/s subwindows 4",
            5,
            "token_bucket has no subwindows",
            ["no subwindows", "sliding_window_counter"],
        ),
        (
            "10/s fixed_window subwindows 4",
            18,
            "fixed_window has no subwindows",
            ["no subwindows", "sliding_window_counter"],
        ),
        # several limits
        (";", 0, "there is no limit here", [WHOLE]),
        ("; 10/s", 0, "there is no limit here", [WHOLE]),
        ("10/s;; 5/m", 5, "there is no limit here", [WHOLE]),
        ("10/s; ;", 6, "there is no limit here", [WHOLE]),
        ("10/s;", 4, "no limit follows the last ';'", [END]),
        ("10/s ; 5/m ; ", 11, "no limit follows the last ';'", [END]),
        ("10/; 5/m", 3, "the limit ends too early", [NUMBER, UNIT]),
        ("10/s burst; 5/m", 10, "the limit ends too early", [WHOLE]),
        ("10/s; 5/q", 8, "'q' does not belong here", [NUMBER, UNIT]),
    ],
)
def test_an_error_points_at_the_first_thing_that_does_not_fit(
    text: str, position: int, problem: str, expected: list[str]
) -> None:
    error = wrong(text)
    assert (error.position, error.problem) == (position, problem)
    assert list(error.expected) == expected


@pytest.mark.parametrize(
    ("text", "position", "problem", "expected"),
    [
        ("1000000000000000/d", 0, "1000000000000000 is too large", QUOTA),
        ("1000000000000000/d gcra", 0, "1000000000000000 is too large", QUOTA),
        ("1000000000000000/d fixed_window", 0, "1000000000000000 is too large", QUOTA),
        ("10/s burst 1000000000000000", 11, "1000000000000000 is too large", QUOTA),
        ("10/s gcra burst 1000000000000000", 16, "1000000000000000 is too large", QUOTA),
        ("10/s; 9/s leaky_bucket burst 1_000000000000000", 29, "is too large", QUOTA),
        ("10/99999999w", 3, "10 would take more than a hundred years to come back", "a shorter"),
        ("10/d burst 999999999", 3, "999999999 would take more than a hundred years", "a shorter"),
        ("10 per 36526 days gcra", 7, "10 would take more than a hundred years", "a shorter"),
        ("10/h leaky_bucket burst 9999999", 3, "9999999 would take more than", "a shorter"),
        ("999999999999999/ms", 0, "the rate is too high", "at most 999999999999999 a second"),
        ("9999999999999999/s burst 5 gcra", 0, "the rate is too high", "at most 999999999999999 a"),
        ("10/0.0001ms fixed_window", 3, "the window is too short", WINDOW),
        ("10/36525.1d sliding_window_log", 3, "the window is too long", WINDOW),
        ("10 per 5218 weeks sliding_window_counter", 7, "the window is too long", WINDOW),
        (
            "10/s sliding_window_counter subwindows 1001",
            39,
            "subwindows is 1001; it must be from 1 to 1000",
            "a smaller number",
        ),
    ],
)
def test_a_number_the_model_refuses_is_pointed_at_with_the_models_error_as_cause(
    text: str, position: int, problem: str, expected: str
) -> None:
    error = wrong(text)
    assert error.position == position
    assert problem in error.problem
    assert len(error.expected) == 1
    assert error.expected[0].startswith(expected)
    assert type(error.__cause__) is LimitError


def test_the_message_shows_the_text_with_a_caret_under_the_place() -> None:
    assert str(wrong("100 per 2 mintues burst 5")).splitlines() == [
        "not a limit: 'mintues' does not belong here; did you mean 'minutes'?",
        "  100 per 2 mintues burst 5",
        "            ^",
        "  expected a unit (ms, s, m, h, d, w, month or year)",
    ]


def test_the_caret_counts_from_the_start_of_the_whole_text() -> None:
    lines = str(wrong("10/s; 5/m; -1/h")).splitlines()
    assert lines[1:3] == ["  10/s; 5/m; -1/h", "             ^"]


@pytest.mark.parametrize(("text", "position"), [("10/s; 5/m", 4), ("10/s;", 4), ("x;", 1)])
def test_parse_limit_sends_several_limits_to_parse_limits(text: str, position: int) -> None:
    with pytest.raises(NotationError, match="parse_limits") as caught:
        parse_limit(text)
    assert (caught.value.text, caught.value.position) == (text, position)
    assert caught.value.expected == (END,)


@pytest.mark.parametrize("value", [None, 100, b"100/minute", ["100/minute"], TokenBucket(1, 1)])
def test_what_is_not_text_is_refused_by_name(value: Any) -> None:
    for parse in (parse_limit, parse_limits):
        with pytest.raises(LimitError) as caught:
            parse(value)
        assert type(caught.value) is LimitError
        assert repr(value) in str(caught.value)


def test_a_text_may_be_as_long_as_the_bound_and_no_longer() -> None:
    assert parse_limit("10/s".ljust(LONGEST_TEXT)) == TokenBucket(10, 10)
    error = wrong("10/s".ljust(LONGEST_TEXT + 1))
    assert (error.position, error.problem) == (LONGEST_TEXT, "the text is too long")
    assert error.expected == ("at most 1000 characters",)


@pytest.mark.parametrize("text", ["{}/s burst 5", "5/{}s", "5/s burst {}"])
def test_a_number_may_be_as_long_as_the_bound_and_no_longer(text: str) -> None:
    assert parse_limit(text.format("5".zfill(LONGEST_NUMBER))) == TokenBucket(
        *{"{}/s burst 5": (5, 5), "5/{}s": (5, 1), "5/s burst {}": (5, 5)}[text]
    )
    error = wrong(text.format("5".zfill(LONGEST_NUMBER + 1)))
    assert (error.position, error.problem) == (text.index("{"), "the number is too long")
    assert error.expected == ("at most 100 characters",)


@pytest.mark.parametrize(
    "text", ["9" * 100 + "/s", "1/" + "9" * 100 + "w", "1/0." + "0" * 97 + "1s"]
)
@pytest.mark.parametrize("algorithm", ["", " gcra", " fixed_window", " burst 3"])
def test_the_most_extreme_numbers_end_in_an_error_of_ours(text: str, algorithm: str) -> None:
    assert type(wrong(text + algorithm).__cause__) is LimitError


def test_limits_without_a_counter_read_back_and_stand_beside_others() -> None:
    assert [str(limit) for limit in (DenyAll(), Unlimited())] == ["0/s", "unlimited"]
    assert parse_limits("0/s; unlimited; 5/s") == (DenyAll(), Unlimited(), TokenBucket(5, 5))
    for limit, quota in ((DenyAll(), 0), (Unlimited(), LARGEST_QUOTA)):
        assert parse_limit(str(limit)) == limit
        assert (limit.quota, limit.period_ns, limit.is_divisible) == (quota, 10**9, False)
