"""The part of the JSON Schema of a policy that is about what requests cost afterwards."""

from __future__ import annotations

from typing import Any

from headgate.limits.model import LARGEST_QUOTA


def after_schema() -> dict[str, Any]:
    """What the reader in `reading.costs` wants under `after`."""
    return {
        "title": "Cost afterwards",
        "description": "What it has cost when it is over, charged beyond what it took to enter.",
        "type": "object",
        "properties": {
            "header": {
                "$ref": "#/$defs/token",
                "description": "The header of the response that says it, a whole number.",
            },
            "bytes": {"const": True, "description": "The bytes of the body that were sent."},
            "per": _whole("How many of them are one unit; one that is begun counts. 1 if not said"),
            "max": _whole("The most units that a request costs."),
        },
        "oneOf": [{"required": ["header"]}, {"required": ["bytes"]}],
        "additionalProperties": False,
        "examples": [{"header": "x-tokens"}, {"bytes": True, "per": 1024, "max": 100_000}],
    }


def with_after() -> dict[str, Any]:
    """What `after` asks of the rest of a cost: it takes something to enter."""
    paid = {"minimum": 1}
    return {
        "properties": {
            "default": paid,
            "endpoints": {"additionalProperties": paid},
            "header": False,
        }
    }


def _whole(description: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": LARGEST_QUOTA, "description": description}
