"""The load of a test and its bounds, and the server that it is sent to."""

from __future__ import annotations

import math
import socket
from dataclasses import dataclass
from fractions import Fraction
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headgate.errors import OptionError
from headgate.units import MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.loadtest.limit_under_test import LimitUnderTest

DEFAULT_DURATION_NS: Final = 10 * SECOND
MOST_CALLERS: Final = 10_000
MOST_CONNECTIONS: Final = 1_000
_LEAST_RATE: Final = Fraction(2)
_FEWEST: Final = 16
_USUAL_MOST: Final = 128


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a load: requests a second, duration, and requests in total."""

    rate: int
    duration_ns: int
    requests: int

    def __str__(self) -> str:
        return f"{self.rate:,}/s, {self.duration_ns // SECOND} s and {self.requests:,} requests"


UNASKED: Final = Bounds(5_000, MINUTE, 100_000)
"""The bounds without `--yes`."""

HARD: Final = Bounds(20_000, 10 * MINUTE, 2_000_000)
"""The bounds with `--yes`."""


@dataclass(frozen=True, slots=True)
class Load:
    """*rate* requests a second, evenly, for *duration_ns*, by *callers* in turn.

    At most *connections* requests are in flight.
    """

    rate: Fraction
    duration_ns: int = DEFAULT_DURATION_NS
    callers: int = 1
    connections: int = _USUAL_MOST

    @property
    def requests(self) -> int:
        """The number of requests."""
        return math.ceil(self.rate * self.duration_ns / SECOND)

    def due_ns(self, place: int) -> int:
        """Return the time of the request number *place*, from 0, since the start."""
        return place * SECOND * self.rate.denominator // self.rate.numerator

    def check(self, *, is_confirmed: bool) -> None:
        """Raise `OptionError` for more than the bounds; if *is_confirmed*, than the hard ones."""
        bounds = HARD if is_confirmed else UNASKED
        way = "" if is_confirmed else f"; --yes raises that to {HARD}"
        seconds = self.duration_ns / SECOND
        for what, is_beyond in (
            (f"the rate is {float(self.rate):,.0f}/s", self.rate > bounds.rate),
            (f"the duration is {seconds:g} s", self.duration_ns > bounds.duration_ns),
            (f"the load is {self.requests:,} requests", self.requests > bounds.requests),
        ):
            if is_beyond:
                raise OptionError(f"{what}; the bounds are {bounds}{way}")


def load_for(
    tested: LimitUnderTest,
    *,
    duration_ns: int | None = None,
    rate: Fraction | None = None,
    callers: int = 1,
    connections: int | None = None,
) -> Load:
    """Return a load that tests *tested*.

    The default of *rate* is twice what the limit allows each caller; that of *duration_ns* twice
    the refill time of the limit, from 10 s to a minute. Raises `OptionError` for invalid numbers.
    """
    if not 1 <= callers <= MOST_CALLERS:
        raise OptionError(f"callers are {callers}; expected 1 to {MOST_CALLERS:,}")
    if connections is not None and not 1 <= connections <= MOST_CONNECTIONS:
        raise OptionError(f"connections are {connections}; expected 1 to {MOST_CONNECTIONS:,}")
    if duration_ns is None:
        refilled_ns = 2 * tested.slowest.period_ns
        duration_ns = max(DEFAULT_DURATION_NS, min(refilled_ns, UNASKED.duration_ns))
    if rate is None:
        needed = 2 * tested.due_in(duration_ns) * SECOND / duration_ns
        rate = callers * max(_LEAST_RATE, Fraction(math.ceil(needed)))
    usual = max(_FEWEST, min(_USUAL_MOST, math.ceil(rate / 10)))
    return Load(rate, duration_ns, callers, usual if connections is None else connections)


CALLER: Final = "{n}"
"""The placeholder of the number of the caller, from 1, in the URL, in headers and in data."""

RUN: Final = "{run}"
"""The placeholder of random letters, new in every run, so that callers are new."""

_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """Requests of *method* to *url*, with *headers* and *data*; CALLER and RUN may be in all.

    Raises `OptionError` for an invalid URL.
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
            raise OptionError("invalid URL; expected one such as http://127.0.0.1:8080/path")
        if parts.username is not None or parts.password is not None:
            raise OptionError("the URL has a password; give it in --header Authorization:")
        if CALLER in parts.netloc or RUN in parts.netloc:
            raise OptionError(
                f"{CALLER} and {RUN} cannot be in the host; expected them in the path or in headers"
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
        """True if requests differ by caller."""
        return any(
            CALLER in text for text in (self.url, self.data or "", *dict(self.headers).values())
        )

    def of(self, caller: int, run: str) -> Target:
        """Return the requests of one *caller*, counted from 0."""

        def filled(text: str) -> str:
            return text.replace(CALLER, str(caller + 1)).replace(RUN, run)

        headers = tuple((name, filled(value)) for name, value in self.headers)
        data = None if self.data is None else filled(self.data)
        return Target(filled(self.url), self.method, headers, data)


def addresses_of(target: Target) -> tuple[str, ...]:
    """Return the addresses of the host. Raises `OptionError` if it has none."""
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise OptionError(f"the host {target.host!r} has no address: {error}") from error
    addresses = tuple(dict.fromkeys(str(one[4][0]) for one in found))
    if any(ip_address(address.partition("%")[0]).is_unspecified for address in addresses):
        raise OptionError(
            f"{target.host} is an address to listen on, not to connect to; expected 127.0.0.1"
        )
    return addresses


def are_of_this_machine(addresses: Sequence[str]) -> bool:
    """Return True if all are loopback addresses."""
    return all(ip_address(address.partition("%")[0]).is_loopback for address in addresses)
