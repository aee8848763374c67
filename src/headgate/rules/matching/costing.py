"""What a request costs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headgate.rules.matching.method import methods_of
from headgate.rules.matching.path import readings, segments_of
from headgate.rules.matching.pattern import compiled

if TYPE_CHECKING:
    from headgate.rules.matching.path import Segments
    from headgate.rules.model import Cost
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


def _by_header(name: str, most: int | None, request: Request) -> int | None:
    lines = request.header_lines(name.lower())
    if len(lines) != 1:
        return None
    text = lines[0].strip()
    if _WHOLE_NUMBER.fullmatch(text) is None:
        return None
    digits = text.lstrip("0") or "0"
    asked = int(digits) if len(digits) <= len(str(MOST)) else MOST + 1
    if most is not None:
        return min(asked, most)
    return asked if asked <= MOST else None


def _by_endpoint(cost: Cost, methods: tuple[str, ...], segments: Segments) -> int:
    for endpoint in cost.endpoints:
        named = endpoint.method is None or endpoint.method.upper() in methods
        if named and compiled(endpoint.endpoint).fits(segments):
            return endpoint.cost
    return cost.default
