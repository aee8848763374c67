"""The shapes of bodies and headers in the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from headgate.responses.bodies import BLOCKED, BUSY, EXCEEDED, OUTAGE
from headgate.service.http.asked import LONGEST_METHOD, LONGEST_PATH
from headgate.stores.port import LARGEST_AMOUNT

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}
_AMOUNT: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": LARGEST_AMOUNT}
_COST: Final[Schema] = {
    "description": "For all rules, or by the id of a rule; as the rules say if it is not there.",
    "oneOf": [_AMOUNT, {"type": "object", "additionalProperties": _AMOUNT}],
}
_REQUEST: Final[Schema] = {
    "method": {"type": "string", "minLength": 1, "maxLength": LONGEST_METHOD, "default": "GET"},
    "path": {
        "type": "string",
        "pattern": "^[/*]",
        "maxLength": LONGEST_PATH,
        "description": "As it was received: not decoded. A query does not matter.",
    },
    "host": {"type": "string", "description": "The Host header, if it is not there."},
    "headers": {
        "oneOf": [
            {"type": "object", "additionalProperties": {"oneOf": [_TEXT, _TEXTS]}},
            {"type": "array", "items": {**_TEXTS, "minItems": 2, "maxItems": 2}},
        ],
        "description": "Names and values, or a list of pairs.",
    },
    "ip": {
        "type": "string",
        "description": "The address that the request came from: a client's, or that of a proxy.",
    },
    "attributes": {
        "type": "object",
        "additionalProperties": _TEXT,
        "description": "What else rules may look at.",
    },
}


def _body(properties: Schema, *required: str) -> Schema:
    shape: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return shape | {"required": list(required)} if required else shape


def _nullable(kind: str, description: str, **more: object) -> Schema:
    return {"type": [kind, "null"], "description": description, **more}


_RULE: Final[Schema] = {
    "id": _TEXT,
    "mode": {"enum": ["enforce", "shadow"]},
    "limit": {"type": "string", "description": "The limit that binds most, as rules have it."},
    "quota": {"type": "integer", "minimum": 0},
    "cost": _AMOUNT,
    "allowed": {"type": "boolean"},
    "remaining": {"type": "integer", "minimum": 0},
    "retry_after_ms": _nullable("integer", "0 if it was allowed; null if it can never fit."),
    "reset_after": {"type": "number", "minimum": 0},
    "source": _TEXT,
}
_DECISION: Final[Schema] = {
    "allowed": {"type": "boolean"},
    "limit": _nullable("string", "The id of the rule that binds most; null if there is none."),
    "quota": _nullable("integer", "Of the limit that binds most."),
    "remaining": _nullable("integer", "The largest cost that would be allowed now."),
    "retry_after": _nullable("integer", "Seconds, rounded up; null if waiting does not help."),
    "retry_after_ms": _nullable("integer", "The same in milliseconds."),
    "delay_ms": {
        "type": "integer",
        "minimum": 1,
        "description": "How long the request is to wait for its turn; absent if it may go now.",
    },
    "reset_after": {"type": "number", "description": "Seconds until all is as if untouched."},
    "source": _nullable("string", "Who decided: `store`, or what stood in for it."),
    "revision": {"type": "integer", "description": "Of the policy in force."},
    "rules": {"type": "array", "items": {"$ref": "#/components/schemas/RuleDecision"}},
}
_ALWAYS: Final = tuple(name for name in _DECISION if name != "delay_ms")
_REFUSAL: Final[Schema] = {
    "error": {"enum": [one[0] for one in (EXCEEDED, OUTAGE, BUSY, BLOCKED)]},
    "message": {"type": "string", "description": "What happened, for people."},
    "limit": {"type": "string", "description": "The id of the rule that refused."},
    "retry_after": {"type": "integer"},
    "retry_after_ms": {"type": "integer"},
}
_LIMIT: Final[Schema] = {
    "name": {"type": "string", "description": "The id of the rule; of its second limit `id/2`."},
    "limit": _TEXT,
    "quota": {"type": "integer"},
    "window": {"type": "integer", "description": "Seconds."},
    "remaining": {"type": "integer"},
    "reset": {"type": "integer", "description": "When all is back: epoch seconds."},
    "reset_after": {"type": "number"},
    "endpoints": _TEXTS,
    "methods": _TEXTS,
}
_PROBLEM: Final[Schema] = {
    "type": _TEXT,
    "title": _TEXT,
    "status": {"type": "integer"},
    "detail": _TEXT,
    "errors": {
        "type": "array",
        "items": _body(
            {
                "field": {"type": "string", "description": "Where; empty for the whole body."},
                "message": {"type": "string", "description": "What was found."},
                "hint": {"type": "string", "description": "What would be right."},
            },
            "field",
            "message",
        ),
    },
}

SCHEMAS: Final[Schema] = {
    "CheckRequest": _body({**_REQUEST, "cost": _COST, "peek": {"type": "boolean"}}, "path"),
    "CallerRequest": _body(_REQUEST),
    "ReservationRequest": _body(
        {
            **_REQUEST,
            "cost": {**_COST, "description": "At least 1 for a rule that is to hold something."},
            "ttl": {"type": "number", "minimum": 0.001, "default": 60, "description": "Seconds."},
        },
        "path",
        "cost",
    ),
    "CommitRequest": _body({"cost": {**_COST, "description": "What was held, if not there."}}),
    "RuleDecision": _body(_RULE, *_RULE),
    "Decision": _body(_DECISION, *_ALWAYS),
    "DeniedDecision": _body({**_REFUSAL, **_DECISION}, *_ALWAYS, "error", "message"),
    "Refusal": _body(_REFUSAL, "error", "message"),
    "Reservation": _body(
        {
            "id": _TEXT,
            "expires": {"type": "number", "description": "When it lapses: epoch seconds."},
            **_DECISION,
        },
        "id",
        "expires",
        *_ALWAYS,
    ),
    "Settlement": _body(
        {"charged": {"type": "object", "additionalProperties": _AMOUNT}}, "charged"
    ),
    "Standing": _body(
        {"limits": {"type": "array", "items": _body(_LIMIT, "name", "limit", "quota")}}, "limits"
    ),
    "Health": _body({"status": _TEXT, "reasons": _TEXTS}, "status"),
    "Problem": {**_body(_PROBLEM, "type", "title", "status", "detail")},
}


def _header(description: str, kind: str = "integer") -> Schema:
    return {"description": description, "schema": {"type": kind}}


HEADERS: Final[Schema] = {
    "X-RateLimit-Limit": _header("The quota of the tightest limit."),
    "X-RateLimit-Remaining": _header("What is left of it."),
    "X-RateLimit-Reset": _header("When all of it is back: epoch seconds."),
    "RateLimit-Policy": _header("All limits that apply (IETF draft 11).", "string"),
    "RateLimit": _header("What is left of each (IETF draft 11).", "string"),
    "Headgate-Queue": _header("How much waits, and for about how long.", "string"),
    "Headgate-Delay": _header("How many seconds the request is delayed.", "number"),
    "Retry-After": _header("Seconds to wait; absent if waiting does not help."),
}
