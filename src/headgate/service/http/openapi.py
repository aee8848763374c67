"""The OpenAPI document of the HTTP API: data, compared with the implementation by a test."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate import __version__
from headgate.responses.bodies import BLOCKED, BUSY, EXCEEDED, OUTAGE
from headgate.service.http.check_request import LONGEST_METHOD, LONGEST_PATH
from headgate.stores.base import LARGEST_AMOUNT

if TYPE_CHECKING:
    from collections.abc import Mapping


# Schemas of bodies and headers.


Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}
_AMOUNT: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": LARGEST_AMOUNT}
_COST: Final[Schema] = {
    "description": "For all rules, or by rule id. Default: the cost that each rule defines.",
    "oneOf": [_AMOUNT, {"type": "object", "additionalProperties": _AMOUNT}],
}
_REQUEST: Final[Schema] = {
    "method": {"type": "string", "minLength": 1, "maxLength": LONGEST_METHOD, "default": "GET"},
    "path": {
        "type": "string",
        "pattern": "^[/*]",
        "maxLength": LONGEST_PATH,
        "description": "As received, not decoded. A query is ignored.",
    },
    "host": {"type": "string", "description": "Default: the Host header."},
    "headers": {
        "oneOf": [
            {"type": "object", "additionalProperties": {"oneOf": [_TEXT, _TEXTS]}},
            {"type": "array", "items": {**_TEXTS, "minItems": 2, "maxItems": 2}},
        ],
        "description": "Names and values, or a list of pairs.",
    },
    "ip": {
        "type": "string",
        "description": "The peer address of the request: a client's or a proxy's.",
    },
    "attributes": {
        "type": "object",
        "additionalProperties": _TEXT,
        "description": "Other attributes that rules can match.",
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
    "limit": {"type": "string", "description": "The tightest limit, in the notation of rules."},
    "quota": {"type": "integer", "minimum": 0},
    "cost": _AMOUNT,
    "allowed": {"type": "boolean"},
    "remaining": {"type": "integer", "minimum": 0},
    "retry_after_ms": _nullable("integer", "0 if allowed; null if the cost can never fit."),
    "is_estimate": _ESTIMATE,
    "reset_after": {"type": "number", "minimum": 0},
    "source": _TEXT,
}
_DECISION: Final[Schema] = {
    "allowed": {"type": "boolean"},
    "limit": _nullable("string", "The id of the tightest rule; null if there is none."),
    "quota": _nullable("integer", "The quota of the tightest limit."),
    "remaining": _nullable("integer", "The largest cost that would be allowed now."),
    "retry_after": _nullable("integer", "Seconds, rounded up; null if waiting does not help."),
    "retry_after_ms": _nullable("integer", "The same in milliseconds."),
    "is_estimate": _ESTIMATE,
    "delay_ms": {
        "type": "integer",
        "minimum": 1,
        "description": "Time to wait in the queue; absent if the request may proceed now.",
    },
    "reset_after": {"type": "number", "description": "Seconds until all limits are unused again."},
    "source": _nullable("string", "The origin of the decision: `store`, or a fallback."),
    "revision": {"type": "integer", "description": "The revision of the policy in force."},
    "rules": {"type": "array", "items": {"$ref": "#/components/schemas/RuleDecision"}},
}
_SOMETIMES: Final = ("delay_ms", "is_estimate")
_ALWAYS: Final = tuple(name for name in _DECISION if name not in _SOMETIMES)
_REFUSAL: Final[Schema] = {
    "error": {"enum": [one[0] for one in (EXCEEDED, OUTAGE, BUSY, BLOCKED)]},
    "message": {"type": "string", "description": "A message for people."},
    "limit": {"type": "string", "description": "The id of the rule that denied the request."},
    "retry_after": {"type": "integer"},
    "retry_after_ms": {"type": "integer"},
}
_LIMIT: Final[Schema] = {
    "name": {"type": "string", "description": "The id of the rule; for its second limit `id/2`."},
    "limit": _TEXT,
    "quota": {"type": "integer"},
    "window": {"type": "integer", "description": "Seconds."},
    "remaining": {"type": "integer"},
    "reset": {"type": "integer", "description": "Time of the full reset, epoch seconds."},
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
                "field": {"type": "string", "description": "The field; empty for the whole body."},
                "message": {"type": "string", "description": "The value that was found."},
                "hint": {"type": "string", "description": "The value that was expected."},
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
            "cost": {**_COST, "description": "At least 1 for each rule that holds an amount."},
            "ttl": {"type": "number", "minimum": 0.001, "default": 60, "description": "Seconds."},
        },
        "path",
        "cost",
    ),
    "CommitRequest": _body({"cost": {**_COST, "description": "Default: the reserved amount."}}),
    "RuleDecision": _body(_RULE, *[name for name in _RULE if name not in _SOMETIMES]),
    "Decision": _body(_DECISION, *_ALWAYS),
    "DeniedDecision": _body({**_REFUSAL, **_DECISION}, *_ALWAYS, "error", "message"),
    "Refusal": _body(_REFUSAL, "error", "message"),
    "Reservation": _body(
        {
            "id": _TEXT,
            "expires": {"type": "number", "description": "Time of expiry, epoch seconds."},
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
    "X-RateLimit-Remaining": _header("The rest of that quota."),
    "X-RateLimit-Reset": _header("Time of the full reset, epoch seconds."),
    "RateLimit-Policy": _header("All limits that apply (IETF draft 11).", "string"),
    "RateLimit": _header("The rest of each (IETF draft 11).", "string"),
    "Headgate-Queue": _header("Length of the queue and approximate waiting time.", "string"),
    "Headgate-Delay": _header("Seconds that the request is delayed.", "number"),
    "Retry-After": _header("Seconds to wait; absent if waiting does not help."),
}


# Paths.


Fragment = dict[str, Any]

_ALLOWED_HEADERS: Final = [name for name in HEADERS if name != "Retry-After"]


def _ref(name: str) -> Fragment:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(name: str, *kinds: str) -> Fragment:
    return {kind: {"schema": _ref(name)} for kind in kinds or ("application/json",)}


def _headers(names: list[str]) -> Fragment:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _limit_response(description: str, name: str | None, *, denied: bool = False) -> Fragment:
    """A response with rate limit headers."""
    response: Fragment = {
        "description": description,
        "headers": _headers(list(HEADERS) if denied else _ALLOWED_HEADERS),
    }
    kinds = ("application/json", "application/problem+json") if denied else ()
    return response | ({"content": _content(name, *kinds)} if name else {})


def _plain(description: str, name: str | None = None) -> Fragment:
    return {"description": description} | ({"content": _content(name)} if name else {})


def _problems(*statuses: int) -> Fragment:
    return {
        str(status): {
            "description": _WHY[status],
            "content": _content("Problem", "application/problem+json"),
        }
        for status in statuses
    }


def _denial_or_problem(description: str, name: str) -> Fragment:
    """A denial or a problem under one status."""
    response = _limit_response(description, name, denied=True)
    either = {"anyOf": [_ref(name), _ref("Problem")]}
    response["content"]["application/problem+json"] = {"schema": either}
    return response


def _paths_body(name: str, *, required: bool = True) -> Fragment:
    return {"required": required, "content": _content(name)}


_WHY: Final = {
    400: "The request is invalid; all errors are listed.",
    404: "Not found.",
    408: "The body did not arrive in time.",
    409: "Already settled or cancelled, perhaps by a call that was answered 503.",
    410: "Expired; nothing was charged.",
    413: "The body is too large.",
    414: "The path is too long.",
    415: "The body is not JSON.",
    422: "Too many rules would hold an amount.",
    431: "Too many headers.",
    503: "The store did not answer in time. It may have executed the call.",
}
_OUTAGE: Final = (
    "Load shedding; or the store is down and a rule fails closed; or no decision in time: what "
    "the store decides later is charged, except for reservations, which are cancelled."
)
_OF_BODY: Final = (400, 408, 413, 415)
_ID: Final[Fragment] = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}

_CHECK: Final[Fragment] = {
    "operationId": "check",
    "summary": "Decide the request that the body describes.",
    "requestBody": _paths_body("CheckRequest"),
    "responses": {
        "200": _limit_response("Allowed.", "Decision"),
        "429": _limit_response("Denied.", "DeniedDecision", denied=True),
        **_problems(*_OF_BODY),
        "503": _denial_or_problem(_OUTAGE, "DeniedDecision"),
    },
}


def _authorize(method: str, place: str, summary: str, parameters: list[Fragment]) -> Fragment:
    return {
        "operationId": f"authorize{place}{method.capitalize()}",
        "summary": summary,
        "parameters": parameters,
        "responses": {
            "200": _limit_response(
                "Allowed. If the request has to wait, so does the answer.", None
            ),
            "429": _limit_response("Denied.", "Refusal", denied=True),
            "403": _denial_or_problem(
                "The peer is not a trusted gateway; or denied, if deny is 403.", "Refusal"
            ),
            **_problems(400, 414, 431),
            "503": _denial_or_problem(_OUTAGE, "Refusal"),
        },
    }


_METHODS: Final = ("get", "head", "post", "put", "patch", "delete", "options", "trace")
_PATH: Final[Fragment] = {
    "name": "path",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
    "description": "The path of the original request, with any number of segments.",
}
_DENY: Final[Fragment] = {
    "name": "deny",
    "in": "query",
    "schema": {"enum": ["403", "429"]},
    "description": "The status of denials, for gateways that support only 403.",
}

PATHS: Final[Fragment] = {
    "/v1/check": {"post": _CHECK},
    "/v1/authorize": {
        method: _authorize(method, "", "Decide the request in a gateway's headers.", [_DENY])
        for method in _METHODS
    },
    "/v1/authorize/{path}": {
        method: _authorize(method, "Path", "Decide the request behind the prefix.", [_PATH])
        for method in _METHODS
    },
    "/v1/rate_limit": {
        "get": {
            "operationId": "rateLimit",
            "summary": "All limits of this caller; consumes nothing.",
            "responses": {"200": _plain("The limits.", "Standing"), **_problems(503)},
        },
        "post": {
            "operationId": "rateLimitOf",
            "summary": "All limits of the caller that the body describes; consumes nothing.",
            "requestBody": _paths_body("CallerRequest"),
            "responses": {"200": _plain("The limits.", "Standing"), **_problems(*_OF_BODY, 503)},
        },
    },
    "/v1/reservations": {
        "post": {
            "operationId": "reserve",
            "summary": "Hold an amount until it is settled or expires.",
            "requestBody": _paths_body("ReservationRequest"),
            "responses": {
                "201": _limit_response("The amount is held.", "Reservation"),
                "429": _limit_response("Denied.", "DeniedDecision", denied=True),
                **_problems(*_OF_BODY, 422),
                "503": _denial_or_problem(_OUTAGE, "DeniedDecision"),
            },
        }
    },
    "/v1/reservations/{id}/commit": {
        "post": {
            "operationId": "commit",
            "summary": "Charge the actual cost, even above the reserved amount.",
            "parameters": [_ID],
            "requestBody": _paths_body("CommitRequest", required=False),
            "responses": {
                "200": _plain("Settled.", "Settlement"),
                **_problems(*_OF_BODY, 404, 409, 410, 503),
            },
        }
    },
    "/v1/reservations/{id}": {
        "delete": {
            "operationId": "cancel",
            "summary": "Return the reserved amount.",
            "parameters": [_ID],
            "responses": {"204": _plain("Cancelled."), **_problems(404, 409, 410, 503)},
        }
    },
    "/healthz": {
        "get": {
            "operationId": "alive",
            "summary": "Liveness.",
            "responses": {"200": _plain("The process is alive.", "Health")},
        }
    },
    "/readyz": {
        "get": {
            "operationId": "ready",
            "summary": "Readiness.",
            "responses": {
                "200": _plain("Ready; the reasons list problems, if any.", "Health"),
                "503": _plain("Not ready, with the reasons.", "Health"),
            },
        }
    },
    "/metrics": {
        "get": {
            "operationId": "metrics",
            "summary": "Metrics for Prometheus.",
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
            "summary": "The dashboard, or a list of endpoints.",
            "responses": {
                "200": {
                    "description": "A page or a text.",
                    "content": {"text/plain": {"schema": {"type": "string"}}},
                }
            },
        }
    },
}

RLS_JSON: Final[Fragment] = {
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
                for status, description in ((200, "Allowed."), (429, "Denied."))
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
    """The document, with the *paths* of other parts of the service and the security *schemes*
    that they name.

    *has_rls*: include `POST /json`.
    """
    secured = {"securitySchemes": dict(schemes)} if schemes else {}
    own = {**PATHS, **RLS_JSON} if has_rls else PATHS
    return {
        "openapi": OPENAPI,
        "info": {
            "title": "Headgate",
            "description": "Rate limit decisions for requests.",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": {**own, **paths},
        "components": {"schemas": SCHEMAS, "headers": HEADERS, **secured},
    }
