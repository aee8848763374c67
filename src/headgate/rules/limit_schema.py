"""The part of the JSON Schema of a policy that is about limits, in all their forms."""

from __future__ import annotations

from typing import Any, Final

from headgate.limits.model import LARGEST_QUOTA
from headgate.limits.notation import LONGEST_TEXT
from headgate.rules.reading.amounts import DEFAULT_TIER, FORMS, LONG_FIELDS, MOST_STACKED
from headgate.rules.reading.terms import WHOLE_FORMS
from headgate.rules.soft_schema import SOFT_FIELDS

Schema = dict[str, Any]


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _whole(least: int, most: int, description: str) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, "description": description}


FIELDS: Final[Schema] = {
    "capacity": _whole(1, LARGEST_QUOTA, "How many at once after a rest."),
    "burst": _whole(1, LARGEST_QUOTA, "How many at once after a rest."),
    "limit": _whole(1, LARGEST_QUOTA, "How many in a window, or at the same time."),
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
    "subwindows": _whole(1, 1_000, "In how many parts a window is counted."),
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
            "pattern": r"^\s*[0-9][0-9_]*\s*(/|[Pp][Ee][Rr])",
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
