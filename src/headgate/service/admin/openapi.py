"""The admin API for an OpenAPI document: its paths, with their schemas in place.

A test holds the paths against those that there are.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate.service.admin.app import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

Data = dict[str, Any]

SECURITY_SCHEME: Final = "adminToken"
SECURITY_SCHEMES: Final[Mapping[str, Data]] = MappingProxyType(
    {SECURITY_SCHEME: {"type": "http", "scheme": "bearer", "description": "HEADGATE_ADMIN_TOKEN"}}
)
"""For `components.securitySchemes`."""

_PROBLEM: Final = "application/problem+json"
_JSON: Final = "application/json"

_WHOLE: Final[Data] = {"type": "integer", "minimum": 0}
_NUMBER: Final[Data] = {"type": "number"}
_TEXT: Final[Data] = {"type": "string"}
_ANY: Final[Data] = {"type": "object"}
_MOMENT: Final[Data] = {"type": "string", "format": "date-time"}
_RULE: Final[Data] = {
    "type": "object",
    "description": "A rule as in a policy file, without its id; `headgate rules schema` has all.",
    "examples": [{"match": {"endpoint": "/login"}, "key_by": "ip", "limit": "5/minute"}],
}
_POLICY: Final[Data] = {
    "type": "object",
    "description": "A policy as in a file; `headgate rules schema` has all.",
    "required": ["version"],
}


def _object(required: tuple[str, ...] = (), **fields: Data) -> Data:
    return {
        "type": "object",
        "properties": fields,
        "required": list(required),
        "additionalProperties": False,
    }


def _list(of: Data) -> Data:
    return {"type": "array", "items": of}


_ISSUE: Final = _object(
    ("severity", "message"),
    severity={"enum": ["error", "warning"]},
    rule_id=_TEXT,
    field=_TEXT,
    message=_TEXT,
    hint=_TEXT,
    line=_WHOLE,
)
_CHANGE: Final[dict[str, Data]] = {
    "revision": _WHOLE,
    "author": _TEXT,
    "time": _MOMENT,
    "what": _TEXT,
    "note": _TEXT,
}
_ONE_RULE: Final = _object(
    ("rule_id", "version", "rule"), rule_id=_TEXT, version=_WHOLE, rule=_RULE
)
_PUT_RULE: Final = _object(
    ("rule_id", "version"),
    rule_id=_TEXT,
    version=_WHOLE,
    mode=_TEXT,
    candidate_of=_TEXT,
    warnings=_list(_ISSUE),
)
_REVISED: Final = _object(
    ("revision",), revision=_WHOLE, changed={"type": "boolean"}, warnings=_list(_ISSUE)
)
_REVISION: Final = _object(
    ("revision", "policy"),
    **_CHANGE,
    policy=_POLICY,
    versions={"type": "object", "additionalProperties": _WHOLE},
    changes={"type": ["object", "null"]},
)
_PREVIEW: Final = _object(
    ("revision", "valid", "changes"),
    revision=_WHOLE,
    valid={"type": "boolean"},
    errors=_list(_ISSUE),
    warnings=_list(_ISSUE),
    changes=_ANY,
    consequences=_list(_object(rule_id=_TEXT, effect=_TEXT, message=_TEXT)),
    counters=_ANY,
)
_COUNTER: Final[dict[str, Data]] = {
    "rule": {"type": "string", "description": "The id of a rule."},
    "key": {"type": "string", "description": "The key of the counter."},
    "tier": {"type": "string", "description": "With a key: whose limits, if tiers have others."},
    "request": {"type": "object", "description": "In place of a key: a request as /v1/check has."},
    "identity": {
        "type": "object",
        "description": "In place of a key: what is known of the caller, as user_id or ip.",
        "additionalProperties": _TEXT,
    },
}
_ASKED: Final[Data] = {
    "type": "object",
    "description": "A request as /v1/check has.",
    "required": ["path"],
    "examples": [{"method": "POST", "path": "/login", "ip": "203.0.113.7"}],
}
_UNTIL: Final[dict[str, Data]] = {
    "until": _MOMENT,
    "ttl": {"type": "number", "minimum": 0.001, "description": "Seconds, in place of until."},
}


def _named(**more: Data) -> Data:
    return _object(("rule",), **_COUNTER, **more)


def _query(name: str, meaning: str, schema: Data | None = None) -> Data:
    return {"name": name, "in": "query", "description": meaning, "schema": schema or _TEXT}


def _operation(
    summary: str,
    answer: Data,
    *,
    body: Data | None = None,
    needs_body: bool = True,
    query: tuple[Data, ...] = (),
    versioned: bool = False,
) -> Data:
    parameters = list(query)
    if versioned:
        meaning = (
            "The version of the rule (else of the policy) that is meant; 412 if it has gone on."
        )
        parameters.append(
            {"name": "If-Match", "in": "header", "description": meaning, "schema": _TEXT}
        )
    operation: Data = {
        "summary": summary,
        "tags": ["admin"],
        "responses": {
            "200": {"description": "Done.", "content": {_JSON: {"schema": answer}}},
            "default": {
                "description": "What went wrong, and what would be right.",
                "content": {_PROBLEM: {"schema": _ANY}},
            },
        },
    }
    if parameters:
        operation["parameters"] = parameters
    if body is not None:
        operation["requestBody"] = {"required": needs_body, "content": {_JSON: {"schema": body}}}
    return operation


_LISTING: Final = (
    _query("mode", "enforce, shadow or off"),
    _query("key_by", "a part of the key"),
    _query("endpoint", "a pattern, or a path that the rule is for"),
    _query("tier", "one that the rule is for, or has limits for"),
    _query("q", "a text anywhere in the rule"),
    _query("limit", "how many at most", _WHOLE),
    _query("offset", "how many to leave out first", _WHOLE),
)
_RULES: Final = _object(
    ("revision", "total", "rules"),
    revision=_WHOLE,
    total=_WHOLE,
    rules=_list(_ONE_RULE),
    next_offset={"type": ["integer", "null"]},
)
_DELETED: Final = _object(
    ("rule_id", "revision"), rule_id=_TEXT, revision=_WHOLE, warnings=_list(_ISSUE)
)
_HISTORY: Final = _object(
    ("revisions",),
    revisions=_list(_object(("revision", "author", "time", "what"), **_CHANGE)),
    next_before={"type": ["integer", "null"]},
)
_KEYS: Final = (
    _query("rule", "the id of a rule"),
    _query("key", "one key; without it some of those in use are listed"),
    _query("tier", "whose limits, if tiers have others"),
    _query("pattern", "only keys like this: * ?"),
    _query("limit", "how many at most", _WHOLE),
)
_BY_KEY: Final = (_query("rule", "the id of a rule"), _query("key", "the key of a counter"))

_LIVE: Final = _object(
    ("at", "began", "version", "workers", "policy", "store", "requests", "rules", "series"),
    at=_NUMBER,
    began=_NUMBER,
    version=_TEXT,
    workers=_WHOLE,
    policy=_ANY,
    store=_ANY,
    factor=_NUMBER,
    requests=_object(("allowed", "denied"), allowed=_WHOLE, denied=_WHOLE),
    latency={
        **_ANY,
        "description": "Seconds: p50, p90 and p99 of the last minute, null if nothing was decided.",
    },
    rules=_list(_ANY),
    series={**_ANY, "description": "By rule and outcome: 120 seconds until `end`, oldest first."},
    minutes={**_ANY, "description": "The same: 180 minutes."},
    busiest_keys=_list(_ANY),
    refused_keys=_list(_ANY),
    hot_keys=_list(_ANY),
    bounds=_list(_ANY),
    queues=_list(_ANY),
    candidates=_list(_ANY),
)

_OPERATIONS: Final[Mapping[str, Mapping[str, Data]]] = MappingProxyType(
    {
        "/rules": {"get": _operation("The rules that fit.", _RULES, query=_LISTING)},
        "/rules/{rule_id}": {
            "get": _operation("One rule.", _ONE_RULE),
            "put": _operation("Make or change a rule.", _PUT_RULE, body=_RULE, versioned=True),
            "delete": _operation("Remove a rule, and its candidate.", _DELETED, versioned=True),
        },
        "/rules/{rule_id}:disable": {
            "post": _operation("Take a rule out of force.", _PUT_RULE, versioned=True)
        },
        "/rules/{rule_id}:enable": {
            "post": _operation(
                "Put a rule in force again, in the mode that it was in if none is said.",
                _PUT_RULE,
                body=_object(mode={"enum": ["enforce", "shadow"]}),
                needs_body=False,
                versioned=True,
            )
        },
        "/rules/{rule_id}/candidate": {
            "post": _operation(
                "Try a rule in shadow beside this one.", _PUT_RULE, body=_RULE, versioned=True
            )
        },
        "/rules/{rule_id}/candidate:preview": {
            "post": _operation("What that would change.", _PREVIEW, body=_RULE)
        },
        "/rules/{rule_id}/adopt": {
            "post": _operation(
                "Put what is tried beside a rule in its place.", _PUT_RULE, versioned=True
            )
        },
        "/rules/{rule_id}/adopt:preview": {"post": _operation("What that would change.", _PREVIEW)},
        "/rules:preview": {
            "post": _operation(
                "What would change; null deletes a rule.",
                _PREVIEW,
                body=_object(
                    ("rules",),
                    rules={"type": "object", "additionalProperties": {"type": ["object", "null"]}},
                ),
            )
        },
        "/policy": {
            "get": _operation("The whole policy.", _REVISION),
            "put": _operation(
                "Replace the policy, all at once.", _REVISED, body=_POLICY, versioned=True
            ),
        },
        "/policy:preview": {"post": _operation("What would change.", _PREVIEW, body=_POLICY)},
        "/history": {
            "get": _operation(
                "Who changed what, the newest first.",
                _HISTORY,
                query=(_query("before", "older than this", _WHOLE), _query("limit", "", _WHOLE)),
            )
        },
        "/history/{number}": {"get": _operation("One revision, and what it changed.", _REVISION)},
        "/rollback": {
            "post": _operation(
                "Make an old revision the newest again, with its switches, blocks and grants.",
                _REVISED,
                body=_object(("revision",), revision={"type": "integer", "minimum": 1}),
                versioned=True,
            )
        },
        "/keys": {"get": _operation("One counter, or some of a rule.", _ANY, query=_KEYS)},
        "/keys:lookup": {"post": _operation("One counter.", _ANY, body=_named())},
        "/keys:reset": {
            "post": _operation("Forget a counter.", _ANY, body=_named(), versioned=True)
        },
        "/keys:grant": {
            "post": _operation(
                "Let a caller have more for a while.",
                _ANY,
                body=_named(extra={"type": "integer", "minimum": 1}, **_UNTIL),
                versioned=True,
            )
        },
        "/keys:block": {
            "post": _operation(
                "Refuse a caller for a while.", _ANY, body=_named(**_UNTIL), versioned=True
            )
        },
        "/keys:unblock": {
            "post": _operation("Refuse it no longer.", _ANY, body=_named(), versioned=True)
        },
        "/overrides": {
            "get": _operation("Blocks and grants that have not ended.", _ANY, query=_BY_KEY),
            "delete": _operation("End one.", _ANY, query=_BY_KEY, versioned=True),
        },
        "/live": {
            "get": _operation(
                "What the service is doing, now and lately: of all workers of this node.", _LIVE
            )
        },
        "/status": {"get": _operation("What is in force, and how it stands.", _ANY)},
        "/pressure": {
            "get": _operation(
                "The hottest keys of this worker, how far limits may be overshot, the breaker, and "
                "the factor that limits are lowered by.",
                _ANY,
                query=(_query("limit", "", _WHOLE),),
            )
        },
        "/explain": {
            "post": _operation(
                "What would become of a request, and why; nothing is counted.", _ANY, body=_ASKED
            )
        },
        "/debug-tokens": {
            "post": _operation(
                "Make a token by which requests hear how they were decided (Headgate-Debug).",
                _ANY,
                body=_object(ttl=_WHOLE),
            )
        },
        "/audit": {
            "get": _operation(
                "Who did, or tried to do, what; without an audit file, at this worker.",
                _ANY,
                query=(_query("limit", "", _WHOLE),),
            )
        },
    }
)
_PARTS: Final = {"{rule_id}": ("rule_id", _TEXT), "{number}": ("number", _WHOLE)}


def admin_paths(*, security: str | None = None) -> dict[str, Data]:
    """The paths, each with its operations; *security* names the scheme that they need."""
    paths: dict[str, Data] = {}
    for path, operations in _OPERATIONS.items():
        item: Data = {
            method: {**operation, "security": [{security: []}]} if security else dict(operation)
            for method, operation in operations.items()
        }
        parts = [part for mark, part in _PARTS.items() if mark in path]
        if parts:
            item["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": schema}
                for name, schema in parts
            ]
        paths[f"{PREFIX}{path}"] = item
    return paths
