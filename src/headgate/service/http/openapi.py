"""The OpenAPI document of the HTTP API: data, held against the implementation by a test."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate import __version__
from headgate.responses.bodies import BLOCKED, BUSY, EXCEEDED, OUTAGE
from headgate.service.http.check_request import LONGEST_METHOD, LONGEST_PATH
from headgate.stores.base import LARGEST_AMOUNT

if TYPE_CHECKING:
    from collections.abc import Mapping


# The shapes of bodies and headers in the OpenAPI document.


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


_ESTIMATE: Final[Schema] = {
    "const": True,
    "description": "The wait is an estimate, as for a slot; absent if it is exact.",
}
_RULE: Final[Schema] = {
    "id": _TEXT,
    "mode": {"enum": ["enforce", "shadow"]},
    "limit": {"type": "string", "description": "The limit that binds most, as rules have it."},
    "quota": {"type": "integer", "minimum": 0},
    "cost": _AMOUNT,
    "allowed": {"type": "boolean"},
    "remaining": {"type": "integer", "minimum": 0},
    "retry_after_ms": _nullable("integer", "0 if it was allowed; null if it can never fit."),
    "is_estimate": _ESTIMATE,
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
    "is_estimate": _ESTIMATE,
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
_SOMETIMES: Final = ("delay_ms", "is_estimate")
_ALWAYS: Final = tuple(name for name in _DECISION if name not in _SOMETIMES)
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
    "RuleDecision": _body(_RULE, *[name for name in _RULE if name not in _SOMETIMES]),
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


# The paths of the OpenAPI document.


Part = dict[str, Any]

_ALLOWED_HEADERS: Final = [name for name in HEADERS if name != "Retry-After"]


def _ref(name: str) -> Part:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(name: str, *kinds: str) -> Part:
    return {kind: {"schema": _ref(name)} for kind in kinds or ("application/json",)}


def _headers(names: list[str]) -> Part:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _told(description: str, name: str | None, *, denied: bool = False) -> Part:
    """A response that tells of limits."""
    said: Part = {
        "description": description,
        "headers": _headers(list(HEADERS) if denied else _ALLOWED_HEADERS),
    }
    kinds = ("application/json", "application/problem+json") if denied else ()
    return said | ({"content": _content(name, *kinds)} if name else {})


def _plain(description: str, name: str | None = None) -> Part:
    return {"description": description} | ({"content": _content(name)} if name else {})


def _problems(*statuses: int) -> Part:
    return {
        str(status): {
            "description": _WHY[status],
            "content": _content("Problem", "application/problem+json"),
        }
        for status in statuses
    }


def _refused(description: str, name: str) -> Part:
    """A refusal, or a problem, under one status."""
    said = _told(description, name, denied=True)
    either = {"anyOf": [_ref(name), _ref("Problem")]}
    said["content"]["application/problem+json"] = {"schema": either}
    return said


def _paths_body(name: str, *, required: bool = True) -> Part:
    return {"required": required, "content": _content(name)}


_WHY: Final = {
    400: "Something is wrong with what was sent; all errors at once.",
    404: "There is no such thing.",
    408: "The body did not arrive in time.",
    409: "It was settled or cancelled already, perhaps by a call that was answered 503.",
    410: "It has lapsed; nothing was charged.",
    413: "The body is too large.",
    414: "The path is too long.",
    415: "The body is not JSON.",
    422: "Too many rules would hold something.",
    431: "Too many headers.",
    503: "No answer of the store in time. What it was told it may have done all the same.",
}
_OUTAGE: Final = (
    "Not enough capacity for now; or a rule that fails closed, and no store; or no decision in "
    "time: what the store decides later is charged all the same, but for reservations, which are "
    "given back."
)
_OF_BODY: Final = (400, 408, 413, 415)
_ID: Final[Part] = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}

_CHECK: Final[Part] = {
    "operationId": "check",
    "summary": "May the request that is described go on?",
    "requestBody": _paths_body("CheckRequest"),
    "responses": {
        "200": _told("It may.", "Decision"),
        "429": _told("It may not.", "DeniedDecision", denied=True),
        **_problems(*_OF_BODY),
        "503": _refused(_OUTAGE, "DeniedDecision"),
    },
}


def _authorize(method: str, place: str, summary: str, parameters: list[Part]) -> Part:
    return {
        "operationId": f"authorize{place}{method.capitalize()}",
        "summary": summary,
        "parameters": parameters,
        "responses": {
            "200": _told("It may go on. If it has to wait for its turn, so does the answer.", None),
            "429": _told("It may not.", "Refusal", denied=True),
            "403": _refused(
                "The peer is not among the gateways; or it may not, if deny is 403.", "Refusal"
            ),
            **_problems(400, 414, 431),
            "503": _refused(_OUTAGE, "Refusal"),
        },
    }


_METHODS: Final = ("get", "head", "post", "put", "patch", "delete", "options", "trace")
_PATH: Final[Part] = {
    "name": "path",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "The path of the original request, of any number of segments.",
}
_DENY: Final[Part] = {
    "name": "deny",
    "in": "query",
    "schema": {"enum": ["403", "429"]},
    "description": "The status of refusals, for gateways that know 403 only.",
}

PATHS: Final[Part] = {
    "/v1/check": {"post": _CHECK},
    "/v1/authorize": {
        method: _authorize(method, "", "The request that a gateway's headers describe.", [_DENY])
        for method in _METHODS
    },
    "/v1/authorize/{path}": {
        method: _authorize(method, "Path", "The request itself, behind the prefix.", [_PATH])
        for method in _METHODS
    },
    "/v1/rate_limit": {
        "get": {
            "operationId": "rateLimit",
            "summary": "Every limit of this caller; consumes nothing.",
            "responses": {"200": _plain("The limits.", "Standing"), **_problems(503)},
        },
        "post": {
            "operationId": "rateLimitOf",
            "summary": "Every limit of the caller that is described; consumes nothing.",
            "requestBody": _paths_body("CallerRequest"),
            "responses": {"200": _plain("The limits.", "Standing"), **_problems(*_OF_BODY, 503)},
        },
    },
    "/v1/reservations": {
        "post": {
            "operationId": "reserve",
            "summary": "Hold an amount until it is settled or lapses.",
            "requestBody": _paths_body("ReservationRequest"),
            "responses": {
                "201": _told("It is held.", "Reservation"),
                "429": _told("It does not fit.", "DeniedDecision", denied=True),
                **_problems(*_OF_BODY, 422),
                "503": _refused(_OUTAGE, "DeniedDecision"),
            },
        }
    },
    "/v1/reservations/{id}/commit": {
        "post": {
            "operationId": "commit",
            "summary": "Charge what it really cost, even beyond what was held.",
            "parameters": [_ID],
            "requestBody": _paths_body("CommitRequest", required=False),
            "responses": {
                "200": _plain("It is settled.", "Settlement"),
                **_problems(*_OF_BODY, 404, 409, 410, 503),
            },
        }
    },
    "/v1/reservations/{id}": {
        "delete": {
            "operationId": "cancel",
            "summary": "Give back what is held.",
            "parameters": [_ID],
            "responses": {"204": _plain("It is cancelled."), **_problems(404, 409, 410, 503)},
        }
    },
    "/healthz": {
        "get": {
            "operationId": "alive",
            "summary": "Whether the process is alive.",
            "responses": {"200": _plain("It is.", "Health")},
        }
    },
    "/readyz": {
        "get": {
            "operationId": "ready",
            "summary": "Whether it should be given requests.",
            "responses": {
                "200": _plain("It should; with reasons: though something is amiss.", "Health"),
                "503": _plain("It should not, and why.", "Health"),
            },
        }
    },
    "/metrics": {
        "get": {
            "operationId": "metrics",
            "summary": "What this worker has counted, for Prometheus.",
            "responses": {
                "200": {
                    "description": "The text format of Prometheus.",
                    "content": {"text/plain": {"schema": {"type": "string"}}},
                }
            },
        }
    },
    "/openapi.json": {
        "get": {
            "operationId": "openapi",
            "summary": "This document.",
            "responses": {
                "200": {
                    "description": "The document.",
                    "content": {"application/json": {"schema": {"type": "object"}}},
                }
            },
        }
    },
    "/": {
        "get": {
            "operationId": "index",
            "summary": "What there is, for people.",
            "responses": {
                "200": {
                    "description": "A text.",
                    "content": {"text/plain": {"schema": {"type": "string"}}},
                }
            },
        }
    },
}

RLS_JSON: Final[Part] = {
    "/json": {
        "post": {
            "operationId": "rlsJson",
            "summary": "Envoy's rate limit service, as JSON.",
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
            "responses": {
                str(status): {
                    "description": description,
                    "content": {"application/json": {"schema": {"type": "object"}}},
                }
                for status, description in ((200, "It may."), (429, "It may not."))
            },
        }
    }
}


OPENAPI: Final = "3.1.0"


def openapi_document(
    paths: Mapping[str, object] = MappingProxyType({}),
    *,
    schemes: Mapping[str, object] = MappingProxyType({}),
    has_rls: bool = False,
) -> dict[str, Any]:
    """The document, with the *paths* of other parts of the service added, and the security
    *schemes* that they name.

    *has_rls*: whether there is `POST /json`.
    """
    secured = {"securitySchemes": dict(schemes)} if schemes else {}
    own = {**PATHS, **RLS_JSON} if has_rls else PATHS
    return {
        "openapi": OPENAPI,
        "info": {
            "title": "Headgate",
            "description": "Rate limit decisions: may this request go on?",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": {**own, **paths},
        "components": {"schemas": SCHEMAS, "headers": HEADERS, **secured},
    }
