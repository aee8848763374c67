"""What an operator may choose about the HTTP API."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError

if TYPE_CHECKING:
    from headgate.identity.address import Network

UNIX: Final = "unix"
"""Among the gateways: whoever comes through a Unix socket."""

LONGEST_DEADLINE: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Whom to believe, how much to take in, how long to take.

    *gateways*: networks, and `unix`, whose word is taken on the request they ask about
    (`/v1/authorize`). The server must leave the peer's address as it is: uvicorn's `proxy_headers`
    has to be off.

    *deadline*: seconds that a decision may take; beyond, the answer is 503, and what the store
    decides later is charged all the same (a reservation is given back). *body_timeout*: seconds
    that a body may take to arrive; beyond, 408. *largest_body*: bytes of it; beyond, 413.
    *longest_target*: bytes of a path; beyond, 414. *most_headers*: lines; beyond, 431.
    *longest_hold*: seconds that a reservation may be held.
    """

    gateways: tuple[str, ...] = ("127.0.0.0/8", "::1/128", UNIX)
    deadline: float = 1.0
    body_timeout: float = 10.0
    largest_body: int = 65_536
    longest_target: int = 16_384
    most_headers: int = 200
    longest_hold: float = 86_400.0

    def __post_init__(self) -> None:
        _ = self.networks
        for name, most in (
            ("deadline", LONGEST_DEADLINE),
            ("body_timeout", LONGEST_DEADLINE),
            ("longest_hold", 30 * 86_400.0),
        ):
            seconds = getattr(self, name)
            if isinstance(seconds, bool) or not isinstance(seconds, int | float):
                raise OptionError(f"{name} is {seconds!r}; expected seconds")
            if not 0 < seconds <= most:
                raise OptionError(f"{name} is {seconds!r}; expected above 0, at most {most:g} s")
        for name in ("largest_body", "longest_target", "most_headers"):
            number = getattr(self, name)
            if type(number) is not int or number < 1:
                raise OptionError(f"{name} is {number!r}; expected an integer of at least 1")

    @property
    def networks(self) -> tuple[Network, ...]:
        """The gateways that have an address; `OptionError` for what is none."""
        if isinstance(self.gateways, str):
            raise OptionError(f"gateways is {self.gateways!r}; expected several, as a tuple")
        return tuple(_network(text) for text in self.gateways if text != UNIX)


def _network(text: object) -> Network:
    try:
        return ip_network(text if isinstance(text, str) else repr(text))
    except ValueError as error:
        raise OptionError(
            f"gateways has {text!r}; expected a network as 10.0.0.0/8, or {UNIX!r} ({error})"
        ) from error
