"""The paths of the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from headgate.service.http.openapi.schemas import HEADERS

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


def _body(name: str, *, required: bool = True) -> Part:
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
    "requestBody": _body("CheckRequest"),
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
            "requestBody": _body("CallerRequest"),
            "responses": {"200": _plain("The limits.", "Standing"), **_problems(*_OF_BODY, 503)},
        },
    },
    "/v1/reservations": {
        "post": {
            "operationId": "reserve",
            "summary": "Hold an amount until it is settled or lapses.",
            "requestBody": _body("ReservationRequest"),
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
            "requestBody": _body("CommitRequest", required=False),
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
