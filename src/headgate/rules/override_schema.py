"""The part of the JSON Schema of a policy that is about one override."""

from __future__ import annotations

from typing import Any

from headgate.limits.model import LARGEST_QUOTA
from headgate.rules.reading.instants import INSTANT
from headgate.rules.reading.overrides import KEY


def override_schema() -> dict[str, Any]:
    """What the reader in `reading.overrides` wants. The id of the rule is a `name` of the whole."""
    until = "2027-01-31T12:00:00Z"
    return {
        "title": "Override",
        "description": "What is otherwise for one counter of a rule, for a while.",
        "type": "object",
        "properties": {
            "rule": {"$ref": "#/$defs/name", "description": "The id of the rule."},
            "key": {
                "description": "The key of the counter, as `headgate rules explain` shows it.",
                "type": ["string", "number"],
                "pattern": f"^{KEY}$",
            },
            "block": {"const": True, "description": "Everything is refused."},
            "extra": {
                "description": "By how much every limit of the rule is larger.",
                "type": "integer",
                "minimum": 1,
                "maximum": LARGEST_QUOTA,
            },
            "until": {
                "description": "When it ends: a date and time with its offset (RFC 3339).",
                "type": "string",
                "pattern": f"^{INSTANT}$",
                "examples": [until],
            },
        },
        "required": ["rule", "key", "until"],
        "oneOf": [{"required": ["block"]}, {"required": ["extra"]}],
        "additionalProperties": False,
        "examples": [{"rule": "login", "key": "ip=203.0.113.7", "block": True, "until": until}],
    }
