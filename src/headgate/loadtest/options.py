"""What is put to the test: limits, what a request costs, and whose refusals count."""

from __future__ import annotations

import math
import socket
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from headgate.errors import OptionError
from headgate.limits import (
    Concurrency,
    FixedWindow,
    LeakyQueue,
    PacedLimit,
    SlidingWindowCounter,
    with_extra,
)
from headgate.units import MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.limits import Limit


_ALIGNED: Final = (FixedWindow, SlidingWindowCounter)
"""Whose windows begin at the same moment for everybody, so that it matters what time it is."""


@dataclass(frozen=True)
class Aim:
    """*limits*, all of which must allow, on requests that cost *cost* units each.

    *rule_id* is the rule they are of, if that is known. *extra* has for each of them how many units
    a fleet may go beyond it, as the accuracy of the rule allows; nothing: none. *remark* is what
    else is to be known of the rule. Raises `OptionError` for what cannot be tested.
    """

    limits: tuple[Limit, ...]
    rule_id: str | None = None
    cost: int = 1
    extra: tuple[int, ...] = ()
    remark: str = ""

    def __post_init__(self) -> None:
        if not self.limits:
            raise OptionError("there is no limit to test")
        for limit in self.limits:
            _check(limit, self.cost)
        if self.extra and len(self.extra) != len(self.limits):
            raise OptionError("expected what may be overshot of each limit, or of none")

    @cached_property
    def ceilings(self) -> tuple[Limit, ...]:
        """The limits that must never be exceeded: with what may be overshot."""
        pairs = zip(self.limits, self.extra or [0] * len(self.limits), strict=True)
        return tuple(with_extra(limit, extra) if extra else limit for limit, extra in pairs)

    @property
    def is_aligned(self) -> bool:
        """Whether it matters what time it is, not only how much time has passed."""
        return any(isinstance(limit, _ALIGNED) for limit in self.limits)

    @property
    def text(self) -> str:
        """The limits in the notation."""
        return "; ".join(map(str, self.limits))

    @property
    def per_second(self) -> Fraction:
        """How many requests a second one caller is admitted in the long run."""
        return min(map(_per_second, self.limits)) / self.cost

    @property
    def burst(self) -> int | None:
        """How many requests come on top of that after a rest; None where windows are counted."""
        if len(self.limits) > 1 or not isinstance(self.limits[0], PacedLimit):
            return None
        return self.limits[0].quota // self.cost

    @property
    def slowest(self) -> Limit:
        """The limit that takes longest to come round, from all in use to nothing in use."""
        return max(self.limits, key=lambda limit: limit.period_ns)

    def due_in(self, duration_ns: int) -> Fraction:
        """About how many requests one caller is admitted in that time, after a rest."""
        amounts = [limit.quota + _per_second(limit) * duration_ns / SECOND for limit in self.limits]
        return min(amounts) / self.cost


def _per_second(limit: Limit) -> Fraction:
    if isinstance(limit, PacedLimit):
        return limit.per_second
    return Fraction(limit.quota * SECOND, limit.period_ns)


def _check(limit: Limit, cost: int) -> None:
    if isinstance(limit, Concurrency):
        raise OptionError(
            f"the limit is {limit}: how many at the same time, not how many in which time. A load "
            "test cannot tell whether it holds; expected a rate, such as 100/s"
        )
    if isinstance(limit, LeakyQueue):
        raise OptionError(
            f"the limit is {limit}: it delays requests rather than refusing them, which a load "
            "test does not measure; expected a limit that refuses, such as 100/s"
        )
    if not 1 <= cost <= limit.quota:
        raise OptionError(
            f"a cost of {cost} can never be admitted under {limit}; expected 1 to {limit.quota}"
        )


# How much is sent, and the bounds of that.


USUAL_DURATION_NS: Final = 10 * SECOND
MOST_CALLERS: Final = 10_000
MOST_CONNECTIONS: Final = 1_000
_LEAST_RATE: Final = Fraction(2)
_FEWEST: Final = 16
_USUAL_MOST: Final = 128


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that is sent: so many a second, for so long, and in all."""

    rate: int
    duration_ns: int
    requests: int

    def __str__(self) -> str:
        return f"{self.rate:,}/s, {self.duration_ns // SECOND} s and {self.requests:,} requests"


UNASKED: Final = Bounds(5_000, MINUTE, 100_000)
"""What is sent without a `--yes`."""

HARD: Final = Bounds(20_000, 10 * MINUTE, 2_000_000)
"""What is never exceeded."""


@dataclass(frozen=True, slots=True)
class Load:
    """*rate* requests a second, evenly, for *duration_ns*, by *callers* in turn.

    At most *connections* are under way at a time.
    """

    rate: Fraction
    duration_ns: int = USUAL_DURATION_NS
    callers: int = 1
    connections: int = _USUAL_MOST

    @property
    def requests(self) -> int:
        """How many in all."""
        return math.ceil(self.rate * self.duration_ns / SECOND)

    def due_ns(self, place: int) -> int:
        """When the request number *place*, counted from 0, is to be sent, from the beginning."""
        return place * SECOND * self.rate.denominator // self.rate.numerator

    def check(self, *, is_confirmed: bool) -> None:
        """Raise `OptionError` for more than the bounds; *is_confirmed*: only for the hard ones."""
        bounds = HARD if is_confirmed else UNASKED
        way = "" if is_confirmed else f"; --yes raises that to {HARD}"
        seconds = self.duration_ns / SECOND
        for told, is_beyond in (
            (f"the rate is {float(self.rate):,.0f}/s", self.rate > bounds.rate),
            (f"the duration is {seconds:g} s", self.duration_ns > bounds.duration_ns),
            (f"the load is {self.requests:,} requests", self.requests > bounds.requests),
        ):
            if is_beyond:
                raise OptionError(f"{told}; the most are {bounds}{way}")


def load_for(
    aim: Aim,
    *,
    duration_ns: int = USUAL_DURATION_NS,
    rate: Fraction | None = None,
    callers: int = 1,
    connections: int | None = None,
) -> Load:
    """A load that puts *aim* to the test: twice what it admits each caller, if no *rate* is given.

    Raises `OptionError` for numbers that make no sense.
    """
    if not 1 <= callers <= MOST_CALLERS:
        raise OptionError(f"callers are {callers}; expected 1 to {MOST_CALLERS:,}")
    if connections is not None and not 1 <= connections <= MOST_CONNECTIONS:
        raise OptionError(f"connections are {connections}; expected 1 to {MOST_CONNECTIONS:,}")
    if rate is None:
        wanted = 2 * aim.due_in(duration_ns) * SECOND / duration_ns
        rate = callers * max(_LEAST_RATE, Fraction(math.ceil(wanted)))
    usual = max(_FEWEST, min(_USUAL_MOST, math.ceil(rate / 10)))
    return Load(rate, duration_ns, callers, usual if connections is None else connections)


# Where requests go and what they look like; and whether that is this machine.


CALLER: Final = "{n}"
"""Stands for the number of the caller, from 1, in the URL, in headers and in data."""

RUN: Final = "{run}"
"""Stands for a few letters that are others in every run: callers that nobody has counted yet."""

_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """Requests of *method* to *url*, with *headers* and *data*; CALLER and RUN may be in all.

    Raises `OptionError` for a URL that is none.
    """

    url: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    data: str | None = None

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            is_right = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_right = False
        if not is_right:
            raise OptionError("the URL cannot be asked; expected http://127.0.0.1:8080/path")
        if parts.username is not None or parts.password is not None:
            raise OptionError("a URL with a password in it; expected it in --header Authorization:")
        if CALLER in parts.netloc or RUN in parts.netloc:
            raise OptionError(
                f"{CALLER} and {RUN} cannot be in the host: only one is tested; expected them in "
                "the path or in headers"
            )

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        parts = urlsplit(self.url)
        return parts.port or _PORTS[parts.scheme]

    @property
    def has_callers(self) -> bool:
        """Whether its requests differ from caller to caller."""
        return any(
            CALLER in text for text in (self.url, self.data or "", *dict(self.headers).values())
        )

    def of(self, caller: int, run: str) -> Target:
        """The requests of one *caller*, counted from 0."""

        def filled(text: str) -> str:
            return text.replace(CALLER, str(caller + 1)).replace(RUN, run)

        headers = tuple((name, filled(value)) for name, value in self.headers)
        data = None if self.data is None else filled(self.data)
        return Target(filled(self.url), self.method, headers, data)

    def at(self, path: str) -> Target:
        """A plain request for *path* of the same server, with the same headers.

        Raises `OptionError` if that is another server.
        """
        other = Target(urljoin(self.url, path), "GET", self.headers)
        if (other.host, other.port) != (self.host, self.port):
            raise OptionError(f"the baseline is {path!r}; expected a path of the same server")
        return other


def addresses_of(target: Target) -> tuple[str, ...]:
    """The addresses of the host, each once. Raises `OptionError` if it has none."""
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise OptionError(f"the host {target.host!r} has no address: {error}") from error
    addresses = tuple(dict.fromkeys(str(one[4][0]) for one in found))
    if any(ip_address(address.partition("%")[0]).is_unspecified for address in addresses):
        raise OptionError(
            f"{target.host} is what a server listens on, not where it is; expected 127.0.0.1"
        )
    return addresses


def are_of_this_machine(addresses: Sequence[str]) -> bool:
    """Whether all of them are loopback addresses."""
    return all(ip_address(address.partition("%")[0]).is_loopback for address in addresses)
