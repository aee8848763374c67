"""The part of the JSON Schema of a policy that is about limits, in all their forms."""

from __future__ import annotations

from typing import Any, Final

from headgate.limits.accuracy import MOST_PARTS
from headgate.limits.model import LARGEST_QUOTA, MOST_SHARES
from headgate.limits.notation import LONGEST_TEXT
from headgate.limits.queues import LONGEST_QUEUE
from headgate.policy.loader.limits import DEFAULT_TIER, FORMS, LONG_FIELDS, MOST_STACKED, RESERVABLE
from headgate.policy.loader.overload import (
    ADAPTIVE_ALGORITHMS,
    LARGEST_WEIGHT,
    LONGEST_LINE,
    MOST_CLASSES,
    MOST_SLOTS,
)
from headgate.policy.loader.rules import AFTER_FAIL_OPEN, STORE_FAILURES, WHOLE_FORMS
from headgate.policy.model import PRIORITIES

# The part of the JSON Schema of a policy that is about how exactly, and through which outages, a
# limit is kept.


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
            "split": _whole(
                MOST_PARTS, "Sub-counters of each counter, on different shards of a cluster."
            ),
        },
        "minProperties": 1,
        "additionalProperties": False,
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


# The part of the JSON Schema of a policy that is about queues, slots, turns, classes of requests
# and pressure.


Schema = dict[str, Any]

_NAME: Final = {"$ref": "#/$defs/name"}
_WORD: Final = {"$ref": "#/$defs/word"}
_RATE: Final = {
    "type": "string",
    "pattern": r"^\s*[0-9][0-9_]*\s*(/|[Pp][Ee][Rr])",
    "description": "A rate such as 10/s; nothing else of the notation.",
    "examples": ["10/s", "100 per minute"],
}


def _soft_schema_whole(least: int, most: int, description: str) -> Schema:
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
    "queue": _soft_schema_whole(0, LONGEST_QUEUE, "How many may wait."),
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
            "anyOf": [SHARE, _soft_schema_whole(1, LARGEST_QUOTA, "So many slots.")],
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
        "queue": _soft_schema_whole(0, LONGEST_LINE, "More requests that wait are pressure."),
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
    slots = _soft_schema_whole(1, LARGEST_QUOTA, "How many at the same time.")
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
    slots = _soft_schema_whole(1, MOST_SLOTS, "How many requests are worked on at the same time.")
    properties = {
        "slots": {"description": "What there is to share.", "anyOf": [slots, _adaptive()]},
        "rate": {**_RATE, "description": "What there is to share, in place of slots."},
        "weights": {
            "description": "By tier; 'default' is for callers of all other tiers, and of none.",
            "type": "object",
            "minProperties": 1,
            "propertyNames": _WORD,
            "additionalProperties": _soft_schema_whole(
                1, LARGEST_WEIGHT, "A weight; 1 if not said."
            ),
            "examples": [{"enterprise": 4, "default": 1}],
        },
        "queue": _soft_schema_whole(0, LONGEST_QUEUE, "How many requests of one caller may wait."),
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
        "min": _soft_schema_whole(1, MOST_SLOTS, "The fewest slots."),
        "max": _soft_schema_whole(1, MOST_SLOTS, "The most slots."),
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


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _limit_schema_whole(least: int, most: int, description: str) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, "description": description}


FIELDS: Final[Schema] = {
    "capacity": _limit_schema_whole(1, LARGEST_QUOTA, "How many at once after a rest."),
    "burst": _limit_schema_whole(1, LARGEST_QUOTA, "How many at once after a rest."),
    "limit": _limit_schema_whole(1, LARGEST_QUOTA, "How many in a window, or at the same time."),
    "refill_rate_per_sec": {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": "How many come back in a second.",
    },
    "rate_per_sec": {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": "How many a second in the long run.",
    },
    "leak_rate_per_sec": {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": "How many leave the bucket in a second.",
    },
    "window": {**_ref("duration"), "description": "The length of the window."},
    "ttl": {**_ref("duration"), "description": "When a slot that is not given back is free."},
    "subwindows": _limit_schema_whole(1, 1_000, "In how many parts a window is counted."),
    **SOFT_FIELDS,
}
_FORM_FIELDS: Final = tuple(dict.fromkeys((*WHOLE_FORMS, *LONG_FIELDS)))
"""All that rules say their limits with, each in one form."""


def limit_schemas() -> Schema:
    """The definitions of a limit, of several, and of those by tier."""
    one = {"anyOf": [_ref("limit_text"), _ref("limit_form")]}
    stack = {"type": "array", "items": one, "minItems": 1, "maxItems": MOST_STACKED}
    by_tier = {
        "description": f"By tier; '{DEFAULT_TIER}' is for callers of all other tiers, and of none.",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": _ref("limit_stack"),
        "propertyNames": _ref("word"),
        "not": {"required": ["algorithm"]},
    }
    return {
        "limit_text": {
            "title": "A limit as text",
            "description": "N/unit, with options; several separated by ';'.",
            "type": "string",
            "maxLength": LONGEST_TEXT,
            "pattern": (
                r"^\s*([0-9][0-9_]*\s*(/|[Pp][Ee][Rr])|[Uu][Nn][Ll][Ii][Mm][Ii][Tt][Ee][Dd])"
            ),
            "examples": ["100/minute", "10/s burst 50", "5/minute sliding_window_log"],
        },
        "limit_form": {
            "title": "A limit with its numbers",
            "type": "object",
            "required": ["algorithm"],
            "oneOf": [_form(name) for name in FORMS],
        },
        "limit_stack": {"anyOf": [one, stack]},
        "limits": {
            "title": "Limits",
            "description": "A list, all of which apply, or limits by tier.",
            "anyOf": [_ref("limit_stack"), by_tier],
            "examples": [["100/minute", "1000/hour"], {"free": "10/s", "paid": "100/s"}],
        },
    }


def _form(name: str) -> Schema:
    """The fields of one algorithm, and no others of limits."""
    form = FORMS[name]
    found: Schema = {
        "title": name,
        "properties": {"algorithm": {"const": name}, **{one: FIELDS[one] for one in form.fields}},
        "required": ["algorithm", *(need for need in form.needs if need not in form.other)],
        "additionalProperties": False,
    }
    if form.other:
        both = form.other.items()
        found["allOf"] = [{"oneOf": [{"required": [each]} for each in one]} for one in both]
    return found


def form_in_rule(name: str) -> Schema:
    """The same within a rule, that has other fields too."""
    form = _form(name)
    del form["additionalProperties"]
    form["properties"] |= without(*form["properties"])
    return form


def without(*kept: str) -> Schema:
    """No field that rules say their limits with, but for those *kept*."""
    return dict.fromkeys((name for name in _FORM_FIELDS if name not in kept), False)
