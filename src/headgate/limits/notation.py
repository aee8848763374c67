"""Limits as people write them.

    limits  = limit { ";" limit }
    limit   = "unlimited"
            | amount ( "/" | "per" ) [ M ] unit { option }     each option at most once, any order
    option  = "burst" amount | "subwindows" N | algorithm
            | "peak" amount ( "/" | "per" ) [ M ] unit "for" [ M ] unit
    amount  = N | M "usd"

`N` is a whole number of at least 1, `M` any decimal number above 0; both may have underscores
between digits. A unit is ms, s, m, h, d, w, month (30 days) or year (365 days), or its long, short
or plural name. An algorithm is token_bucket (when none is named), gcra, leaky_bucket, fixed_window,
sliding_window_counter (or `sliding`) or sliding_window_log (or `strict`); hyphens may stand for the
underscores. Case never matters. N may be 0: such a limit denies everything, and has no option but
an algorithm.

    100/minute                                  a bucket of 100 that refills 100 a minute
    100/s burst 200                             a bucket of 200 that refills 100 a second
    10 per 1.5 hours gcra
    5/minute strict                             never more than 5 in any minute
    1000/h sliding-window-counter subwindows 6
    10/s; 1000 per day fixed_window             two limits
    0/minute                                    nothing is allowed
    unlimited                                   everything is allowed
    50 usd/day                                  50,000,000 units a day: a unit is a millionth of it
    10/s peak 100/s for 30s                     two limits: burst credits (see `credits`)

`burst` is the most that a paced limit allows at once, by default N; a window has none apart from
its limit. With a `peak` it is the burst of the peak, by default a tenth of a second at that rate.
`subwindows` is for sliding_window_counter alone. Numbers are read exactly, never
through a float. What `str` makes of a limit reads back as that limit; only a `Concurrency` has no
notation.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from headgate.errors import LimitError, NotationError, nearest
from headgate.limits.model import (
    GCRA,
    LARGEST_QUOTA,
    DenyAll,
    FixedWindow,
    LeakyBucket,
    Limit,
    PacedLimit,
    SlidingWindowCounter,
    SlidingWindowLog,
    TokenBucket,
    Unlimited,
)
from headgate.units import (
    DAY,
    HOUR,
    MILLISECOND,
    MINUTE,
    MONTH,
    SECOND,
    WEEK,
    YEAR,
    duration_ns,
    exact_rate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headgate.units import Rate, Seconds


# Burst credits: unused units are saved and spent later at a higher rate.
#
# Two stacked limits. With base rate r, peak rate p, and a burst b of the peak:
#
#     a bucket of C = (p - r) * d + b units that refills at r      the credits
#     a bucket of b units that refills at p                        the speed at which they are spent
#
# With full buckets, the second allows at most `b + p * t` units in the first t seconds, the first
# at most `C + r * t`. The two meet at t = d: until then the peak decides, from then on the base
# rate. A pause of `C / r` seconds restores all credits, a shorter pause fewer.


USUAL_BURST: Final = Fraction(1, 10)
"""Seconds at the peak rate that make up its default burst, which is at least 1."""


def burst_credits(
    base: Rate, peak: Rate, duration: Seconds, *, burst: int | None = None
) -> tuple[TokenBucket, TokenBucket]:
    """Return two limits, to be stacked: *base* units a second, and *peak* after a pause.

    Full credits last for *duration* seconds at the peak. *burst* is the most at once: by default a
    tenth of a second at the peak, at least 1. Raises `LimitError`.
    """
    rates = exact_rate(base, "base"), exact_rate(peak, "peak")
    ceiling, at_once = credit_sizes(*rates, duration, burst)
    return TokenBucket(ceiling, rates[0]), TokenBucket(at_once, rates[1])


def credit_sizes(
    base: Fraction, peak: Fraction, duration: Seconds, burst: int | None
) -> tuple[int, int]:
    """Return the capacities of both buckets: the most credits, and the burst.

    Raises `LimitError`; its first word names the wrong parameter.
    """
    if peak <= base:
        raise LimitError(f"peak is {peak} a second; expected more than the base rate of {base}")
    at_once = max(1, int(peak * USUAL_BURST)) if burst is None else burst
    if at_once < 1:
        raise LimitError(f"burst is {burst!r}; expected a whole number of at least 1")
    saved = int((peak - base) * duration_ns(duration, "duration") / SECOND)
    if not saved:
        raise LimitError("duration is too short; expected time for one unit more than at the base")
    return saved + at_once, at_once


LONGEST_TEXT: Final = 1_000
"""The most characters that `parse_limit` and `parse_limits` read."""

LONGEST_NUMBER: Final = 100
"""The most characters in one number."""

_UNITS: Final = {
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), MILLISECOND),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), SECOND),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), MINUTE),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), HOUR),
    **dict.fromkeys(("d", "day", "days"), DAY),
    **dict.fromkeys(("w", "week", "weeks"), WEEK),
    **dict.fromkeys(("mo", "month", "months"), MONTH),
    **dict.fromkeys(("y", "yr", "yrs", "year", "years"), YEAR),
}
_PACED: Final[dict[str, type[PacedLimit]]] = {
    one.algorithm: one for one in (TokenBucket, GCRA, LeakyBucket)
}
_WINDOWED: Final[dict[str, Callable[..., Limit]]] = {
    one.algorithm: one for one in (FixedWindow, SlidingWindowLog, SlidingWindowCounter)
}
_ALGORITHMS: Final = (*_PACED, *_WINDOWED)
_ALIASES: Final = {"sliding": "sliding_window_counter", "strict": "sliding_window_log"}
_SERVES: Final = {"burst": _PACED, "subwindows": ["sliding_window_counter"], "peak": _PACED}
"""The options with numbers, and the algorithms that know them."""
_OPTIONS: Final = {
    **{name: name for name in _SERVES},
    **dict.fromkeys((*_ALGORITHMS, *_ALIASES), "algorithm"),
}
"""The words that can begin an option, and which one each begins."""

USD: Final = 1_000_000
"""The units of a dollar: money is counted in millionths of it."""

_A_WHOLE_NUMBER: Final = "a whole number of at least 1"
_A_NUMBER: Final = "a number above 0"
_A_UNIT: Final = "a unit (ms, s, m, h, d, w, month or year)"
_THE_END: Final = "the end of the limit"

_TOKEN: Final = re.compile(
    r"(?P<number>[+-]?\.?[0-9][0-9_.]*)|(?P<word>[A-Za-z_][A-Za-z0-9_-]*)|(?P<mark>\S)", re.ASCII
)
_NUMBER: Final = re.compile(r"[0-9]+(?:_[0-9]+)*(?:\.[0-9]+(?:_[0-9]+)*)?")


def parse_limit(text: str) -> Limit:
    """Parse *text*, which is one limit.

    Raises `NotationError`, which points at the mistake, or `LimitError` if *text* is not text.
    """
    tokens = _scan(text)
    for token in tokens:
        if token.word == ";":
            raise token.wrong("parse_limit reads one limit, parse_limits several", _THE_END)
    peak = next((token for token in tokens if token.name == "peak"), None)
    limit, *more = _read_limit(tokens)
    if peak is not None and more:
        problem = "a limit with a peak is two, and parse_limit reads one: parse_limits reads both"
        raise peak.wrong(problem, "no peak")
    return limit


def parse_limits(text: str) -> tuple[Limit, ...]:
    """Parse *text*, which is one limit or several, separated by semicolons.

    Raises like `parse_limit`, also for a semicolon with no limit on one of its sides.
    """
    tokens = _scan(text)
    limits = [*_read_limit(tokens)]
    while (separator := tokens.popleft()).word == ";":
        if tokens[0].kind == "end":
            raise separator.wrong("no limit follows the last ';'", _THE_END)
        limits += _read_limit(tokens)
    return tuple(limits)


def parse_rate(text: str) -> Fraction:
    """Parse a rate such as `10/s` or `100 per minute` to units a second, exactly.

    The text is a limit without options. Raises like `parse_limit`.
    """
    tokens = _scan(text)
    if tokens[0].is_last:
        raise tokens[0].wrong("there is no rate here", _A_WHOLE_NUMBER)
    count, _, seconds = _read_rate(tokens)
    if tokens[0].kind != "end":
        raise tokens[0].wrong(f"{tokens[0].word!r} does not belong to a rate", "the end of it")
    return int(count.word) / seconds


@dataclass(frozen=True, slots=True)
class _Token:
    """A *word* of the *source*; its kind is number, word, mark or end."""

    kind: str
    word: str
    position: int
    source: str

    @property
    def is_last(self) -> bool:
        """True if a limit ends here."""
        return self.kind == "end" or self.word == ";"

    @property
    def name(self) -> str:
        """The word in the spelling of the notation."""
        return self.word.lower().replace("-", "_")

    def wrong(self, problem: str, *expected: str) -> NotationError:
        return NotationError(self.source, self.position, problem, expected)

    def misplaced(self, known: Iterable[str], *expected: str) -> NotationError:
        """The error of a token that is not expected here, with the nearest *known* word."""
        if self.is_last:
            return self.wrong("the limit ends too early", *expected)
        near = nearest(self.name, known) if self.kind == "word" else None
        hint = "" if near is None else f"; did you mean {near!r}?"
        return self.wrong(f"{self.word!r} does not belong here{hint}", *expected)


@dataclass(frozen=True, slots=True)
class _Peak:
    """The part that follows *word*, which is `peak`: a rate and a number of seconds."""

    word: _Token
    per_second: Fraction
    lasting: _Token  # the first token of the duration, for errors
    seconds: Fraction


@dataclass(frozen=True, slots=True)
class _Written:
    """The parts of a limit, each of them valid by itself."""

    count: _Token
    period: _Token  # the first token of the period, for errors
    seconds: Fraction
    options: Mapping[str, tuple[_Token, ...]]  # the word of each, then its number if it has one
    peak: _Peak | None = None

    @property
    def algorithm(self) -> str:
        name = self.options["algorithm"][0].name if "algorithm" in self.options else "token_bucket"
        return _ALIASES.get(name, name)

    @property
    def quota(self) -> _Token:
        return self.options["burst"][1] if "burst" in self.options else self.count

    @property
    def per_second(self) -> Fraction:
        return int(self.count.word) / self.seconds


def _scan(text: str) -> deque[_Token]:
    if not isinstance(text, str):
        raise LimitError(f"the limit is {text!r}; expected text such as '100/minute'")
    if len(text) > LONGEST_TEXT:
        bound = f"at most {LONGEST_TEXT} characters"
        raise NotationError(text, LONGEST_TEXT, "the text is too long", [bound])
    found = _TOKEN.finditer(text)
    tokens = [_Token(str(match.lastgroup), match.group(), match.start(), text) for match in found]
    return deque([*tokens, _Token("end", "", len(text.rstrip()), text)])


def _read_limit(tokens: deque[_Token]) -> tuple[Limit, ...]:
    """One limit; two if it has a peak."""
    if tokens[0].is_last:
        raise tokens[0].wrong("there is no limit here", _A_WHOLE_NUMBER)
    if tokens[0].name == "unlimited":
        tokens.popleft()
        if not tokens[0].is_last:
            raise tokens[0].wrong(f"{tokens[0].word!r} does not belong to unlimited", _THE_END)
        return (Unlimited(),)
    written = _Written(*_read_rate(tokens, least=0), *_read_options(tokens))
    _check_options(written)
    if not int(written.count.word):
        return (DenyAll(),)
    try:
        return (_build(written),) if written.peak is None else _with_peak(written, written.peak)
    except NotationError:
        raise
    except LimitError as error:
        raise _located(error, written) from error


def _read_rate(tokens: deque[_Token], least: int = 1) -> tuple[_Token, _Token, Fraction]:
    """Read the count, the first token of the period, and the period in seconds."""
    count = _read_amount(tokens, least)
    if tokens[0].name not in ("/", "per"):
        raise tokens[0].misplaced(["per"], "'/'", "'per'")
    tokens.popleft()
    return count, tokens[0], _read_period(tokens)


def _read_amount(tokens: deque[_Token], least: int = 1) -> _Token:
    """Read a whole number, or an amount of money, as a number of units."""
    if len(tokens) < 2 or tokens[1].name != "usd":
        return _read_whole(tokens, least)
    number = _read_number(tokens, _A_NUMBER)
    tokens.popleft()
    units = Fraction(number.word) * USD
    if units.denominator > 1:
        raise number.wrong(f"{number.word} usd has parts of a millionth", "fewer decimals")
    if units < least:
        raise number.wrong(f"{number.word} usd is less than a millionth", _A_NUMBER)
    return _Token(number.kind, str(units), number.position, number.source)


def _read_whole(tokens: deque[_Token], least: int = 1) -> _Token:
    token = _read_number(tokens, _A_WHOLE_NUMBER)
    if "." in token.word:
        raise token.wrong(f"{token.word} is a fraction", _A_WHOLE_NUMBER)
    if int(token.word) < least:
        raise token.wrong(f"{token.word} is less than 1", _A_WHOLE_NUMBER)
    return token


def _read_number(tokens: deque[_Token], expected: str) -> _Token:
    token = tokens.popleft()
    if token.kind != "number":
        raise token.misplaced((), expected)
    if token.word.startswith("-"):
        raise token.wrong(f"{token.word} is negative", expected)
    if not _NUMBER.fullmatch(token.word):
        raise token.wrong(f"{token.word!r} is not a number", expected)
    if len(token.word) > LONGEST_NUMBER:
        raise token.wrong("the number is too long", f"at most {LONGEST_NUMBER} characters")
    return token


def _read_period(tokens: deque[_Token]) -> Fraction:
    """The period in seconds."""
    amount = Fraction(1)
    expected = [_A_NUMBER, _A_UNIT]
    if tokens[0].kind == "number":
        number = _read_number(tokens, _A_NUMBER)
        amount = Fraction(number.word)
        expected = [_A_UNIT]
        if not amount:
            raise number.wrong(f"{number.word} is no time at all", _A_NUMBER)
    unit = tokens.popleft()
    if unit.name not in _UNITS:
        raise unit.misplaced(_UNITS, *expected)
    return amount * _UNITS[unit.name] / SECOND


def _read_options(tokens: deque[_Token]) -> tuple[Mapping[str, tuple[_Token, ...]], _Peak | None]:
    options: dict[str, tuple[_Token, ...]] = {}
    peak = None
    while not tokens[0].is_last:
        token = tokens.popleft()
        option = _OPTIONS.get(token.name)
        if option is None or option in options:
            raise _not_an_option(token, options)
        if option == "peak":
            peak = _read_peak(token, tokens)
            options[option] = (token,)
        else:
            options[option] = (token, *_read_values(option, tokens))
    return options, peak


def _read_values(option: str, tokens: deque[_Token]) -> list[_Token]:
    """Read the number of an *option* that has one."""
    if option not in _SERVES:
        return []
    return [_read_amount(tokens) if option == "burst" else _read_whole(tokens)]


def _read_peak(word: _Token, tokens: deque[_Token]) -> _Peak:
    count, _, seconds = _read_rate(tokens)
    if tokens[0].name != "for":
        raise tokens[0].misplaced(["for"], "'for' and how long")
    tokens.popleft()
    return _Peak(word, int(count.word) / seconds, tokens[0], _read_period(tokens))


def _not_an_option(token: _Token, options: Mapping[str, tuple[_Token, ...]]) -> NotationError:
    """Return the error of a *token* that begins no option, or one that is in *options* already."""
    named = [_ALIASES.get(word.name, word.name) for word in options.get("algorithm", ())]
    possible = {
        option: "'peak N/unit for T'" if option == "peak" else f"'{option} N'"
        for option, algorithms in _SERVES.items()
        if option not in options and all(name in algorithms for name in named)
    }
    if not named:
        possible["algorithm"] = f"an algorithm ({', '.join(_ALGORITHMS)})"
    expected = (*possible.values(), _THE_END)
    if token.name in _OPTIONS:
        return token.wrong(f"this is a second {_OPTIONS[token.name]}", *expected)
    return token.misplaced([word for word in _OPTIONS if _OPTIONS[word] in possible], *expected)


def _check_options(written: _Written) -> None:
    for option, algorithms in _SERVES.items():
        word = written.options.get(option, (None,))[0]
        if word is not None and written.algorithm not in algorithms:
            why = ": a window has none apart from its limit" if option == "burst" else ""
            problem = f"{written.algorithm} has no {option}{why}"
            raise word.wrong(problem, f"no {option}", *algorithms)
        if word is not None and not int(written.count.word):
            raise word.wrong(f"a limit of 0 has no {option}", f"no {option}")


def _with_peak(written: _Written, peak: _Peak) -> tuple[Limit, ...]:
    burst = int(written.quota.word) if "burst" in written.options else None
    paced = _PACED[written.algorithm]
    try:
        ceiling, at_once = credit_sizes(written.per_second, peak.per_second, peak.seconds, burst)
        return paced.of(ceiling, written.per_second), paced.of(at_once, peak.per_second)
    except LimitError as error:
        if str(error).startswith("duration"):
            raise peak.lasting.wrong(str(error), "another time") from error
        raise peak.word.wrong(str(error), "another peak, or a shorter one") from error


def _build(written: _Written) -> Limit:
    if written.algorithm in _PACED:
        return _PACED[written.algorithm].of(int(written.quota.word), written.per_second)
    subwindows = [int(token.word) for token in written.options.get("subwindows", ())[1:]]
    return _WINDOWED[written.algorithm](int(written.count.word), written.seconds, *subwindows)


def _located(error: LimitError, written: _Written) -> NotationError:
    """Return *error* of a limit type with its place in the text; its first word names the field."""
    match str(error).partition(" ")[0]:
        case "limit" | "capacity" | "burst":
            bounds = f"a whole number from 1 to {LARGEST_QUOTA}"
            return written.quota.wrong(f"{written.quota.word} is too large", bounds)
        case "subwindows":
            return written.options["subwindows"][1].wrong(str(error), "a smaller number")
        case "window":
            problem = f"the window is too {'short' if written.seconds < 1 else 'long'}"
            return written.period.wrong(problem, "a period from a microsecond to a hundred years")
    if written.per_second > LARGEST_QUOTA:
        return written.count.wrong("the rate is too high", f"at most {LARGEST_QUOTA} a second")
    if "too fine" in str(error):
        return written.period.wrong("the rate is too fine a fraction", "a rounder period")
    problem = f"{written.quota.word} would take more than a hundred years to come back"
    return written.period.wrong(problem, "a shorter period")
