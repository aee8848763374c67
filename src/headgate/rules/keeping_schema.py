"""The part of the JSON Schema of a policy that is about how exactly, and through which outages, a
limit is kept."""

from __future__ import annotations

from typing import Any, Final

from headgate.limits.accuracy import MOST_PARTS
from headgate.limits.model import LARGEST_QUOTA
from headgate.rules.reading.keeping import AFTER_FAIL_OPEN, STORE_FAILURES

SHARE: Final = {
    "type": "string",
    "pattern": r"^(?!0+(\.0+)? ?%$)0*(100(\.0+)?|[0-9]{1,2}(\.[0-9]+)?) ?%$",
}
DURATION: Final = {"$ref": "#/$defs/duration"}


def accuracy_schema() -> dict[str, Any]:
    """What the reader in `reading.keeping` wants under `accuracy`."""
    return {
        "title": "Accuracy",
        "description": "How far a fleet may overshoot to save round trips; exact if nothing is "
        "said.",
        "type": "object",
        "properties": {
            "max_overshoot": {**SHARE, "description": "The most, as a share of the limit."},
            "batch": _whole(LARGEST_QUOTA, "How many a node takes from the store at once."),
            "sync": {**DURATION, "description": "Decide here, and exchange what was used."},
            "denials": {
                "description": "For how long a refusal is remembered; off: not at all.",
                "anyOf": [DURATION, {"enum": ["off", False]}],
            },
            "split": _whole(MOST_PARTS, "Into how many parts a hot counter is split."),
        },
        "minProperties": 1,
        "additionalProperties": False,
        "dependentSchemas": {
            "split": {"anyOf": [{"required": ["max_overshoot"]}, {"required": ["batch"]}]}
        },
        "examples": [{"max_overshoot": "1%"}, {"sync": "100ms", "max_overshoot": "5%"}],
    }


def on_store_failure_schema() -> dict[str, Any]:
    """What the reader wants under `on_store_failure`."""
    table = {
        "title": "On store failure",
        "type": "object",
        "properties": {
            "mode": {"enum": list(STORE_FAILURES)},
            "share": {**SHARE, "description": "Of the limit, that each process still admits."},
            "max_fail_open": {**DURATION, "description": "How long it stays open at most."},
            "then": {"enum": list(AFTER_FAIL_OPEN), "description": "And what it does after that."},
        },
        "additionalProperties": False,
        "dependentRequired": {"then": ["max_fail_open"]},
        "dependentSchemas": {
            "max_fail_open": {"properties": {"mode": {"const": "fail_open"}}},
            "share": {"properties": {"mode": {"enum": ["fail_open", "local"]}}},
        },
    }
    return {
        "description": "What to do when the store cannot decide.",
        "anyOf": [{"enum": list(STORE_FAILURES)}, table],
        "default": "fail_open",
        "examples": ["local", {"mode": "fail_open", "share": "25%", "max_fail_open": "5m"}],
    }


def _whole(most: int, description: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": most, "description": description}
