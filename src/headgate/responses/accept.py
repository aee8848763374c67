"""Which of two bodies a client would rather read: the `Accept` header (RFC 9110, 12.5.1)."""

from __future__ import annotations

import re
from typing import Final

_RANGE: Final = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+')
_PARAMETER: Final = re.compile(r'(?:[^;"]|"(?:[^"\\]|\\.)*"?)+')
_WEIGHT: Final = re.compile(r"(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)", re.ASCII)

_PLAIN: Final = "application/json"
_PROBLEM: Final = "application/problem+json"


def wants_problem(accept: str | None) -> bool:
    """Whether a client that sent *accept* is to get `application/problem+json`.

    It is if it names that type and does not like `application/json` better, or likes it better by
    way of a wildcard. Ranges that make no sense are as if they were not there.
    """
    if accept is None or "application" not in accept.lower():
        return False
    weights = _weights(accept)
    problem, plain = _weight(weights, _PROBLEM), _weight(weights, _PLAIN)
    if _PROBLEM in weights:
        return 0 < problem >= plain
    return problem > plain


def _weights(accept: str) -> dict[str, float]:
    """The weight of each media range; of one that is there twice the higher."""
    found: dict[str, float] = {}
    for item in _RANGE.findall(accept):
        name, _, parameters = item.lower().partition(";")
        weight = _weight_among(_PARAMETER.findall(parameters))
        if weight is not None:
            name = name.strip()
            found[name] = max(weight, found.get(name, 0.0))
    return found


def _weight_among(parameters: list[str]) -> float | None:
    """The weight that *parameters* give; 1 if they give none, None if it makes no sense."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            text = value.strip()
            return float(text) if _WEIGHT.fullmatch(text) else None
    return 1.0


def _weight(weights: dict[str, float], media_type: str) -> float:
    """The weight of *media_type*: that of the most particular range it is in."""
    for candidate in (media_type, "application/*", "*/*"):
        if candidate in weights:
            return weights[candidate]
    return 0.0
