"""The JSON Schema of a policy, for editors and for whoever writes policies by program.

It says what the reader in `reading` wants, as far as a schema can: what it refuses the reader
refuses too, but not the other way round. A value that YAML takes for a number may stand where a
word is wanted, because the reader takes words as they are written.
"""

from __future__ import annotations

from typing import Any, Final

from headgate.limits.model import LARGEST_QUOTA
from headgate.policy.limit_schema import (
    FIELDS,
    accuracy_schema,
    form_in_rule,
    limit_schemas,
    on_store_failure_schema,
    pressure_schema,
    priority_schema,
    soft_fields,
    without,
)
from headgate.policy.loader.identity import FALLBACKS, KINDS, RESERVED
from headgate.policy.loader.limits import FORMS
from headgate.policy.loader.matches import MOST_FINGERPRINTS, MOST_RETRIES
from headgate.policy.loader.overrides import KEY, MOST_OVERRIDES
from headgate.policy.loader.policies import VERSION
from headgate.policy.loader.rules import HEADER_MODES, MODES, WAYS_TO_DECIDE
from headgate.policy.loader.scalars import INSTANT, LONGEST_WORD
from headgate.policy.model import BUILT_IN_PARTS

# The part of the JSON Schema of a policy that is about what requests cost afterwards.


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


# The part of the JSON Schema of a policy that is about one override.


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


DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

_CANDIDATE: Final[Schema] = {
    "required": ["mode"],
    "properties": {"mode": {"enum": [mode for mode in (*MODES, False) if mode != "enforce"]}},
}
"""What a rule with `candidate_of` has besides."""

_NAME: Final = "^[A-Za-z0-9._-]{1,100}$"
_TOKEN: Final = "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}$"  # noqa: S105 - a token of HTTP


def policy_schema() -> Schema:
    """The schema of a whole policy."""
    return {
        "$schema": DIALECT,
        "title": "Headgate policy",
        "description": "Which requests are limited, by whose counter, and how much they may be.",
        "type": "object",
        "properties": {
            "version": {"const": VERSION, "description": "The version of this format: 1."},
            "identity": _ref("identity"),
            "priority": priority_schema(),
            "pressure": pressure_schema(),
            "rules": {
                "title": "Rules",
                "description": "Every rule that matches a request applies, all or nothing.",
                "type": "array",
                "items": {"allOf": [_ref("rule")], "required": ["id"]},
            },
            "overrides": {
                "title": "Overrides",
                "description": "What is otherwise for single counters, for a while.",
                "type": "array",
                "items": _ref("override"),
                "maxItems": MOST_OVERRIDES,
            },
        },
        "required": ["version"],
        "additionalProperties": False,
        "$defs": _definitions(),
    }


def rule_schema() -> Schema:
    """The schema of one rule, as the admin API takes it: its id need not be in it."""
    return {
        "$schema": DIALECT,
        "title": "Headgate rule",
        "$ref": "#/$defs/rule",
        "$defs": _definitions(),
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _definitions() -> Schema:
    return {
        **_scalars(),
        **limit_schemas(),
        "identity": _identity(),
        "source": _source(),
        "address": _address(),
        "match": _match(),
        "cost": _cost(),
        "rule": _rule(),
        "override": override_schema(),
    }


def _object(title: str, description: str, properties: Schema, **more: object) -> Schema:
    return {
        "title": title,
        "description": description,
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **more,
    }


def _map_of(values: Schema, description: str, **more: object) -> Schema:
    return {
        "description": description,
        "type": "object",
        "minProperties": 1,
        "additionalProperties": values,
        **more,
    }


def _several(one: Schema, description: str, **more: object) -> Schema:
    """One, or a list of at least one."""
    many = {"type": "array", "items": one, "minItems": 1}
    return {"description": description, "anyOf": [one, many], **more}


def _schema_whole(least: int, most: int, description: str) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most, "description": description}


def _scalars() -> Schema:
    words = {"type": ["string", "number"], "minLength": 1}
    return {
        "word": {**words, "maxLength": LONGEST_WORD, "pattern": r"\S"},
        "name": {**words, "pattern": _NAME},
        "token": {**words, "pattern": _TOKEN},
        "pattern": {
            "description": "A path; * is one segment, ** any number of them.",
            "type": "string",
            "pattern": "^/",
            "maxLength": LONGEST_WORD,
            "examples": ["/login", "/api/v1/*", "/api/**"],
        },
        "duration": {
            "description": "Seconds, or a time with its unit.",
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": "^([0-9][0-9_.]* *)?[A-Za-z]+$"},
            ],
            "examples": [60, "30s", "1 minute"],
        },
    }


def _identity() -> Schema:
    built_in = ["api_key", "user_id", "tenant", "tier"]
    return {
        "title": "Identity",
        "description": "How to tell who is asking: names, and where they are found.",
        "type": "object",
        "properties": {
            **dict.fromkeys(built_in, _ref("source")),
            "ip": _ref("address"),
            "fallback": {
                "description": "Whose counter it is if the caller does not say who it is.",
                "enum": list(FALLBACKS),
                "default": "ip",
            },
        },
        "propertyNames": {"pattern": _NAME, "not": {"enum": list(RESERVED)}},
        "additionalProperties": _ref("source"),
        "examples": [{"tier": {"header": "x-tier", "default": "free"}}],
    }


def _source() -> Schema:
    properties = {
        "header": {**_ref("token"), "description": "The name of a header."},
        "cookie": {**_ref("token"), "description": "The name of a cookie."},
        "attribute": {**_ref("word"), "description": "The name of an attribute."},
        "lookup": {**_ref("word"), "description": "The source whose value is looked up."},
        "values": _map_of(_ref("word"), "What to find for which value."),
        "default": {**_ref("word"), "description": "What stands for a value that is not there."},
        "secret": {"type": "boolean", "description": "Hashed before it is used in a key."},
    }
    return _object(
        "Source",
        "Where one thing about a caller is found.",
        properties,
        oneOf=[{"required": [kind]} for kind in KINDS],
        dependentRequired={"lookup": ["values"], "values": ["lookup"]},
        examples=[{"header": "x-api-key"}, {"lookup": "api_key", "values": {"key-1": "paid"}}],
    )


def _address() -> Schema:
    network = {"type": "string", "minLength": 1, "examples": ["10.0.0.0/8", "2001:db8::1"]}
    properties = {
        "trusted_proxies": _several(network, "Addresses and networks of proxies to believe."),
        "ipv4_prefix": _schema_whole(1, 32, "How many bits of an IPv4 address are one caller."),
        "ipv6_prefix": _schema_whole(1, 128, "How many bits of an IPv6 address are one caller."),
        "header": {**_ref("token"), "description": "What the proxies add addresses to."},
    }
    return _object("Address", "How to find the address of the caller.", properties)


def _match() -> Schema:
    condition = {
        "anyOf": [
            {"const": True, "description": "It must be there, with any value."},
            _ref("word"),
            {"type": "array", "items": _ref("word"), "minItems": 1},
        ]
    }
    names = {"propertyNames": _ref("token")}
    properties = {
        "endpoint": _several(_ref("pattern"), "Patterns of paths.", examples=["/api/**"]),
        "method": _several(
            _ref("token"), "Methods, in any case; GET is for HEAD too.", examples=["POST"]
        ),
        "host": _several(_ref("word"), "Hosts; *. in front is any subdomain."),
        "tier": _several(_ref("word"), "Tiers of callers.", examples=["free"]),
        "headers": _map_of(condition, "Headers and the values they must have.", **names),
        "cookies": _map_of(condition, "Cookies and the values they must have.", **names),
        "attributes": _map_of(condition, "Attributes and the values they must have."),
    }
    return _object("Match", "Which requests the rule is for; all if nothing is said.", properties)


def _cost() -> Schema:
    amount = _schema_whole(0, LARGEST_QUOTA, "What a request costs.")
    properties = {
        "default": amount,
        "endpoints": _map_of(
            amount, "By endpoint, the first that fits; GET is for HEAD too.", examples=[{"/x/*": 2}]
        ),
        "header": {**_ref("token"), "description": "The header that says it; needs max."},
        "max": _schema_whole(1, LARGEST_QUOTA, "The most that the header can say."),
        "after": after_schema(),
    }
    both = {"header": ["max"], "max": ["header"]}
    more = {"dependentRequired": both, "dependentSchemas": {"after": with_after()}}
    table = _object("Cost", "How to find the cost.", properties, **more)
    return {
        "description": "What a request costs; 1 if nothing is said.",
        "anyOf": [amount, table],
        "examples": [5, {"default": 1, "endpoints": {"POST /export/pdf": 10}}],
    }


def _rule() -> Schema:
    alone = {"reserve": False, "share_by": False}
    one: list[tuple[str, str, Schema]] = [
        ("limit as text", "limit", {"limit": _ref("limit_text")}),
        ("limits", "limits", {"limits": _ref("limits")}),
        ("shape", "shape", {}),
        ("concurrency", "concurrency", alone),
        ("fair", "fair", alone),
    ]
    return _object(
        "Rule",
        "When this matches, count by that key against these limits.",
        _rule_properties(),
        required=["key_by"],
        oneOf=[
            *(
                {"title": title, "properties": own | without(name), "required": [name]}
                for title, name, own in one
            ),
            *(form_in_rule(name) for name in FORMS),
        ],
        dependentSchemas={"candidate_of": _CANDIDATE},
        examples=[{"id": "login", "key_by": "ip", "limit": "5/minute"}],
    )


def _rule_properties() -> Schema:
    parts = ["api_key", "tenant", *BUILT_IN_PARTS, "header:x-client", ["tenant", "endpoint"]]
    return {
        "id": {**_ref("name"), "description": "The name of the rule, unique in the policy."},
        "description": {"type": ["string", "number"], "description": "For people."},
        "match": _ref("match"),
        "key_by": _several(_ref("word"), "Whose counter it is.", examples=parts),
        "limit": {"description": "A limit such as 100/minute; with algorithm, a number."},
        "limits": {"description": "A list, all of which apply, or limits by tier."},
        "algorithm": {"description": "The long form of a limit.", "enum": list(FORMS)},
        **{name: value for name, value in FIELDS.items() if name != "limit"},
        **soft_fields(),
        "cost": _ref("cost"),
        "mode": {
            "description": "Whether it decides, only counts, or is out of force.",
            "enum": [*MODES, False],
            "default": "enforce",
        },
        "candidate_of": {
            **_ref("name"),
            "description": "The rule that this one, in shadow, is tried beside.",
        },
        "on_store_failure": on_store_failure_schema(),
        "accuracy": accuracy_schema(),
        "across_regions": {
            "description": "Whether regions with stores of their own count together.",
            "type": "boolean",
            "default": False,
        },
        "headers": {
            "description": "What a response tells of the rule.",
            "enum": [*HEADER_MODES, True, False],
            "default": "on",
        },
        "idempotency": _idempotency(),
        "decide": {
            "description": "How a gateway decides: as it does otherwise if nothing is said.",
            "enum": list(WAYS_TO_DECIDE),
        },
    }


def _idempotency() -> Schema:
    properties = {
        "header": _ref("token"),
        "ttl": _ref("duration"),
        "retries": {
            **_schema_whole(1, MOST_RETRIES, "How many retries are free within that time."),
            "default": 10,
        },
        "fingerprint": {
            "description": "Headers that have to be the same, besides caller, method and path.",
            "anyOf": [
                _ref("token"),
                {
                    "type": "array",
                    "items": _ref("token"),
                    "minItems": 1,
                    "maxItems": MOST_FINGERPRINTS,
                },
            ],
            "examples": [["content-digest"]],
        },
    }
    table = _object("Idempotency", "Where the key is, and how long it lasts.", properties)
    return {
        "description": "Whether a retry with the same key is not charged again.",
        "anyOf": [{"type": "boolean"}, table],
    }
