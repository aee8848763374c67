"""The part of the JSON Schema of a policy that is about queues, slots, turns, classes of requests
and pressure."""

from __future__ import annotations

from typing import Any, Final

from headgate.limits.model import LARGEST_QUOTA
from headgate.limits.queues import LONGEST_QUEUE
from headgate.limits.shares import MOST_SHARES
from headgate.rules.keeping_schema import DURATION, SHARE
from headgate.rules.reading.pressing import LONGEST_LINE
from headgate.rules.reading.priorities import MOST_CLASSES
from headgate.rules.reading.slots import RESERVABLE
from headgate.rules.reading.turns import ADAPTIVE_ALGORITHMS, LARGEST_WEIGHT, MOST_SLOTS
from headgate.rules.soft import PRIORITIES

Schema = dict[str, Any]

_NAME: Final = {"$ref": "#/$defs/name"}
_WORD: Final = {"$ref": "#/$defs/word"}
_RATE: Final = {
    "type": "string",
    "pattern": r"^\s*[0-9][0-9_]*\s*(/|[Pp][Ee][Rr])",
    "description": "A rate such as 10/s; nothing else of the notation.",
    "examples": ["10/s", "100 per minute"],
}


def _whole(least: int, most: int, description: str) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, "description": description}


def _object(title: str, description: str, properties: Schema, **more: object) -> Schema:
    return {
        "title": title,
        "description": description,
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **more,
    }


def _share(description: str) -> Schema:
    return {**SHARE, "description": description}


SOFT_FIELDS: Final[Schema] = {
    "rate": _RATE,
    "queue": _whole(0, LONGEST_QUEUE, "How many may wait."),
    "max_wait": {
        "description": "How long one may wait at most; 0 for not at all.",
        "anyOf": [DURATION, {"const": 0}],
    },
    "shares": {
        "description": "Slots that parts of the callers are guaranteed: a number, or a percentage.",
        "type": "object",
        "minProperties": 1,
        "maxProperties": MOST_SHARES,
        "propertyNames": _NAME,
        "additionalProperties": {
            "anyOf": [SHARE, _whole(1, LARGEST_QUOTA, "So many slots.")],
        },
        "examples": [{"enterprise": "40%", "paid": 60}],
    },
    "lends": {
        "description": "Whether guaranteed slots that lie idle are for everybody.",
        "type": "boolean",
        "default": True,
    },
}
"""What queues and slots have in the long form of a limit."""


def soft_fields() -> Schema:
    """What a rule may have of all this, besides the long form of limits."""
    return {
        "shape": _shape(),
        "concurrency": _concurrency(),
        "fair": _fair(),
        "reserve": _reserve("Slots that are kept for requests of a class, and those above it."),
        "share_by": _share_by(),
        "adaptive": _object(
            "Adaptive",
            "How far pressure may lower the limits.",
            {"floor": _share("The share of the limits that is never taken away.")},
            required=["floor"],
            examples=[{"floor": "20%"}],
        ),
    }


def priority_schema() -> Schema:
    """What the reader in `reading.priorities` wants."""
    properties = {
        "class": {"description": "How much they matter.", "enum": list(PRIORITIES)},
        "match": {"$ref": "#/$defs/match"},
    }
    one = _object("Class of requests", "Which requests are of it.", properties, required=["class"])
    return {
        "title": "Priority",
        "description": "Which requests matter more, and which less: the first that fits counts.",
        "type": "array",
        "items": one,
        "maxItems": MOST_CLASSES,
        "examples": [[{"class": "critical", "match": {"endpoint": "/pay/**"}}]],
    }


def pressure_schema() -> Schema:
    """What the reader in `reading.pressing` wants."""
    properties = {
        "latency": {**DURATION, "description": "Requests that take longer are pressure."},
        "quantile": _share("Of the requests that ended, the part that must be faster."),
        "errors": _share("A larger part of requests that failed is pressure."),
        "queue": _whole(0, LONGEST_LINE, "More requests that wait are pressure."),
        "interval": {**DURATION, "description": "How often that is looked at."},
        "backoff": _share("What limits are multiplied by under pressure."),
        "recovery": _share("What limits regain without it, of what they are."),
        "least": _share("What they are never lowered below."),
    }
    told = "When limits of rules with a floor are lowered by themselves, and how."
    return _object("Pressure", told, properties, examples=[{"latency": "500ms", "errors": "5%"}])


def _shape() -> Schema:
    properties = {name: SOFT_FIELDS[name] for name in ("rate", "queue", "max_wait")}
    return _object(
        "Shape",
        "Requests wait for their turn, in the order of arrival, instead of being refused.",
        properties,
        required=["rate"],
        anyOf=[{"required": ["queue"]}, {"required": ["max_wait"]}],
        examples=[{"rate": "10/s", "queue": 100, "max_wait": "5s"}],
    )


def _concurrency() -> Schema:
    slots = _whole(1, LARGEST_QUOTA, "How many at the same time.")
    properties = {
        "limit": slots,
        "ttl": {**DURATION, "description": "When a slot that is not given back is free."},
        "share_by": _share_by(),
        "shares": SOFT_FIELDS["shares"],
        "lends": SOFT_FIELDS["lends"],
        "reserve": _reserve("What is kept for requests of a class, and those above it."),
    }
    table = _object("Slots", "How many at the same time.", properties, required=["limit"])
    return {
        "description": "How many requests there may be at the same time.",
        "anyOf": [slots, table],
        "examples": [200, {"limit": 200, "ttl": "30s", "reserve": {"critical": "20%"}}],
    }


def _fair() -> Schema:
    slots = _whole(1, MOST_SLOTS, "How many requests are worked on at the same time.")
    properties = {
        "slots": {"description": "What there is to share.", "anyOf": [slots, _adaptive()]},
        "rate": {**_RATE, "description": "What there is to share, in place of slots."},
        "weights": {
            "description": "By tier; 'default' is for callers of all other tiers, and of none.",
            "type": "object",
            "minProperties": 1,
            "propertyNames": _WORD,
            "additionalProperties": _whole(1, LARGEST_WEIGHT, "A weight; 1 if not said."),
            "examples": [{"enterprise": 4, "default": 1}],
        },
        "queue": _whole(0, LONGEST_QUEUE, "How many requests of one caller may wait."),
        "max_wait": SOFT_FIELDS["max_wait"],
        "reserve": _reserve("Slots that are kept for requests of a class, and those above it."),
    }
    return _object(
        "Fair",
        "Requests take turns in each process, by weight of whom they are counted for.",
        properties,
        oneOf=[{"required": ["slots"]}, {"required": ["rate"], "properties": {"reserve": False}}],
        examples=[{"slots": 50, "weights": {"enterprise": 4}, "queue": 100, "max_wait": "2s"}],
    )


def _adaptive() -> Schema:
    properties = {
        "adaptive": {"description": "What moves them.", "enum": list(ADAPTIVE_ALGORITHMS)},
        "min": _whole(1, MOST_SLOTS, "The fewest slots."),
        "max": _whole(1, MOST_SLOTS, "The most slots."),
        "target": {**DURATION, "description": "How long a request may take."},
    }
    told = "Slots that move with how requests fare."
    example = {"adaptive": "gradient", "min": 5, "max": 200}
    return _object("Adaptive", told, properties, required=["adaptive"], examples=[example])


def _reserve(description: str) -> Schema:
    shares: Schema = {str(name): _share(f"For requests that are {name}.") for name in RESERVABLE}
    return _object("Reserve", description, shares, minProperties=1, examples=[{"critical": "20%"}])


def _share_by() -> Schema:
    told = "What a caller's share goes by: priority, or a name in identity such as tier."
    return {**_WORD, "description": told, "examples": ["tier", "priority"]}
