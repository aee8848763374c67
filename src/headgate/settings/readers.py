"""What a single value of the configuration means.

Every reader takes the `Spot` of a value, notes what is wrong with it and then answers None.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_network
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.errors import OptionError
from headgate.rules.reading import scalars
from headgate.rules.reading.fields import several
from headgate.rules.reading.tree import Scalar
from headgate.settings.address import EXPECTED, parse_address

if TYPE_CHECKING:
    from headgate.rules.reading.findings import Spot
    from headgate.settings.address import Address

T = TypeVar("T")
Reader = Callable[["Spot"], T | None]

NONE: Final = "off"
"""What says that there is to be none of something that there is if nothing is said."""

_LONGEST_SECRET: Final = 4_096
_A_DAY: Final = 86_400
_NANOSECONDS: Final = 1_000_000_000


def text(expected: str) -> Reader[str]:
    """Any text of one line."""
    return lambda spot: scalars.word(spot, expected)


def choice(*words: str) -> Reader[str]:
    """One of *words*."""
    return lambda spot: scalars.choice(spot, *words)


def whole(least: int, most: int) -> Reader[int]:
    """A whole number from *least* to *most*."""
    return lambda spot: scalars.whole(spot, least, most)


def boolean(spot: Spot) -> bool | None:
    """True or false."""
    return scalars.boolean(spot)


def share(spot: Spot) -> float | None:
    """A number from 0 to 1."""
    found = scalars.number(spot, "a number from 0 to 1")
    if found is None:
        return None
    if not 0 <= found <= 1:
        spot.expected("a number from 0 to 1")
        return None
    return float(found)


def seconds(least: float = 0.001, most: float = _A_DAY) -> Reader[float]:
    """A time in seconds, or with a unit: `30s`, `500ms`."""

    def read(spot: Spot) -> float | None:
        node = spot.node
        if isinstance(node, Scalar) and node.text in {"0", "0s"}:
            found: float = 0.0
        else:
            nanoseconds = scalars.duration_ns(spot)
            if nanoseconds is None:
                return None
            found = nanoseconds / _NANOSECONDS
        if not least <= found <= most:
            spot.wrong(f"found {found:g} seconds; expected from {least:g} to {most:g}")
            return None
        return found

    return read


def addresses(spot: Spot) -> tuple[Address, ...] | None:
    """Addresses to listen on, each only once; `off` for none."""
    if isinstance(spot.node, Scalar) and spot.node.text == NONE:
        return ()
    return several(spot, address, EXPECTED)


def address(spot: Spot) -> Address | None:
    """One address to listen on."""
    found = scalars.word(spot, EXPECTED)
    if found is None:
        return None
    try:
        return parse_address(found)
    except OptionError as error:
        spot.wrong(str(error))
        return None


def networks(spot: Spot) -> tuple[str, ...] | None:
    """Networks such as 10.0.0.0/8; `off` for none."""
    if isinstance(spot.node, Scalar) and spot.node.text == NONE:
        return ()
    return several(spot, _network, "a network such as 10.0.0.0/8")


def _network(spot: Spot) -> str | None:
    found = scalars.word(spot, "a network such as 10.0.0.0/8")
    if found is None or found == "unix":
        return found
    try:
        return str(ip_network(found))
    except ValueError as error:
        spot.wrong(f"{error}; expected a network such as 10.0.0.0/8")
        return None


def octal(spot: Spot) -> int | None:
    """The permissions of a file, such as 660."""
    node = spot.node
    digits = node.text.removeprefix("0o") if isinstance(node, Scalar) else ""
    if not (0 < len(digits) <= 4 and set(digits) <= set("01234567")) or int(digits, 8) > 0o777:
        spot.expected("permissions such as 660")
        return None
    return int(digits, 8)


def secret(spot: Spot) -> bytes | None:
    """A secret, as bytes. What is wrong with it is said without repeating it."""
    node = spot.node
    if not isinstance(node, Scalar) or node.is_null or not node.text.strip():
        spot.wrong("expected a text that is not empty")
        return None
    found = node.text.encode("utf-8", "surrogateescape")
    if len(found) > _LONGEST_SECRET:
        spot.wrong(f"{len(found)} bytes; expected at most {_LONGEST_SECRET}")
        return None
    return found
