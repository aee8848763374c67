"""What a request costs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headgate.rules.matching.method import methods_of
from headgate.rules.matching.path import readings, segments_of
from headgate.rules.matching.pattern import compiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.rules.matching.path import Segments
    from headgate.rules.model import After, Cost
    from headgate.rules.request import Request

MOST: Final = 2**53 - 1
"""No header may ask for more: what stores count exactly."""

_WHOLE_NUMBER = re.compile(r"[0-9]+")


def cost_of(cost: Cost, request: Request, path: str) -> int:
    """What *request*, with the normalised *path*, costs: by its header, else by its endpoint, else
    the default.

    A header counts if it is there once and is a whole number; it is cut to `cost.most`. Without
    such a bound, one beyond `MOST` does not count. When a path can be read in several ways, the
    dearest counts. What is said of GET is said of HEAD.
    """
    named = None if cost.header is None else _by_header(cost.header, cost.most, request)
    if named is not None:
        return named
    if not cost.endpoints:
        return cost.default
    methods = methods_of(request)
    others = readings(request.path)[1:] if path != request.path else ()
    return max(_by_endpoint(cost, methods, way) for way in (segments_of(path), *others))


def cost_after(after: After, amount: int) -> int:
    """What a request has cost for which *amount* was said, or so many bytes sent."""
    units = -(-amount // after.per)
    return units if after.most is None else min(units, after.most)


def cost_said_after(after: After, lines: Sequence[str]) -> int | None:
    """The same by the *lines* of the response's header; None if they do not say it.

    They do as those of a request do: there is one, and it is a whole number; one beyond `MOST` is
    `after.most`, and does not count if there is no such bound.
    """
    amount = _whole_number(lines)
    if amount is None:
        return None
    return cost_after(after, amount) if amount <= MOST else after.most


def _by_header(name: str, most: int | None, request: Request) -> int | None:
    asked = _whole_number(request.header_lines(name.lower()))
    if asked is None:
        return None
    if most is not None:
        return min(asked, most)
    return asked if asked <= MOST else None


def _whole_number(lines: Sequence[str]) -> int | None:
    """What a header says that is there once; `MOST + 1` stands for anything larger."""
    if len(lines) != 1:
        return None
    text = lines[0].strip()
    if _WHOLE_NUMBER.fullmatch(text) is None:
        return None
    digits = text.lstrip("0") or "0"
    return min(int(digits), MOST + 1) if len(digits) <= len(str(MOST)) else MOST + 1


def _by_endpoint(cost: Cost, methods: tuple[str, ...], segments: Segments) -> int:
    for endpoint in cost.endpoints:
        named = endpoint.method is None or endpoint.method.upper() in methods
        if named and compiled(endpoint.endpoint).fits(segments):
            return endpoint.cost
    return cost.default
