"""The OpenAPI document: the operations, with the schemas of bodies."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate import __version__
from headgate.service.http.check_request import REQUESTS
from headgate.service.http.schemas import RESPONSES, ref

if TYPE_CHECKING:
    from collections.abc import Mapping

Fragment = dict[str, Any]

_JSON: Final = "application/json"
_PROBLEM: Final = "application/problem+json"

HEADERS: Final = {
    "X-RateLimit-Limit": ("integer", "The quota of the tightest limit."),
    "X-RateLimit-Remaining": ("integer", "The rest of that quota."),
    "X-RateLimit-Reset": ("integer", "Time of the full reset, epoch seconds."),
    "RateLimit-Policy": ("string", "All limits that apply (IETF draft 11)."),
    "RateLimit": ("string", "The rest of each (IETF draft 11)."),
    "Headgate-Queue": ("string", "Length of the queue and approximate waiting time."),
    "Headgate-Delay": ("number", "Seconds that the request is delayed."),
    "Retry-After": ("integer", "Seconds to wait; absent if waiting does not help."),
}
_WHY: Final = {
    400: "The request is invalid; all errors are listed.",
    404: "Not found.",
    408: "The body did not arrive in time.",
    409: "Already settled or cancelled, perhaps by a call that was answered 503.",
    410: "Expired; nothing was charged.",
    413: "The body is too large.",
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


def _response(
    description: str,
    kind: str | None = None,
    *,
    is_decision: bool = False,
    denies: bool = False,
    or_problem: bool = False,
) -> Fragment:
    """A response with a body of *kind*, and rate limit headers if it *is_decision*.

    A *kind* is a schema by name, or a media type. *denies* adds `Retry-After`, and *or_problem* is
    for a status that problems have too.
    """
    found: Fragment = {"description": description}
    if is_decision:
        names = [name for name in HEADERS if denies or name != "Retry-After"]
        found["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
    if kind is not None and "/" in kind:
        plain = "object" if kind == _JSON else "string"
        found["content"] = {kind: {"schema": {"type": plain}}}
    elif kind is not None:
        content = {_JSON: ref(kind)} | ({_PROBLEM: ref(kind)} if denies else {})
        if or_problem:
            content[_PROBLEM] = {"anyOf": [ref(kind), ref("Problem")]}
        found["content"] = {media: {"schema": schema} for media, schema in content.items()}
    return found


def _operation(
    name: str,
    summary: str,
    responses: Mapping[int, Fragment],
    *,
    problems: tuple[int, ...] = (),
    body: str | None = None,
    needs_body: bool = True,
    parameter: Fragment | None = None,
) -> Fragment:
    """An operation. *body* is a schema by name; *problems* are statuses."""
    found: Fragment = {
        "operationId": name,
        "summary": summary,
        "responses": {str(status): one for status, one in responses.items()},
    }
    for status in problems:
        content = {_PROBLEM: {"schema": ref("Problem")}}
        found["responses"][str(status)] = {"description": _WHY[status], "content": content}
    if body is not None:
        schema = {"type": "object"} if body == _JSON else ref(body)
        found["requestBody"] = {"required": needs_body, "content": {_JSON: {"schema": schema}}}
    return found | ({"parameters": [parameter]} if parameter is not None else {})


def _get(name: str, summary: str, description: str, kind: str) -> Fragment:
    """A path with one operation and one response."""
    return {"get": _operation(name, summary, {200: _response(description, kind)})}


def _decisions(allowed: Fragment, denial: str, *, status: int = 200) -> dict[int, Fragment]:
    """The responses of an operation that decides."""
    return {
        status: allowed,
        414: _response("The path is too long.", denial, is_decision=True),
        429: _response("Denied.", denial, is_decision=True, denies=True),
        503: _response(_OUTAGE, denial, is_decision=True, denies=True, or_problem=True),
    }


def _authorize(name: str, summary: str, parameter: Fragment) -> Fragment:
    """The operations of a path that takes any method."""
    why = "The peer is not a trusted gateway; or denied, if deny is 403."
    waits = "Allowed. If the request has to wait, so does the answer."
    responses = {
        **_decisions(_response(waits, is_decision=True), "Refusal"),
        403: _response(why, "Refusal", is_decision=True, denies=True, or_problem=True),
    }
    return {
        method: _operation(
            f"{name}{method.capitalize()}",
            summary,
            responses,
            problems=(400, 431),
            parameter=parameter,
        )
        for method in ("get", "head", "post", "put", "patch", "delete", "options", "trace")
    }


def _parameter(name: str, place: str, schema: Fragment, description: str = "") -> Fragment:
    found: Fragment = {"name": name, "in": place, "schema": schema}
    found |= {"description": description} if description else {}
    return found | ({"required": True} if place == "path" else {})


_ID: Final = _parameter("id", "path", {"type": "string"})
_ONLY_403: Final = "The status of denials, for gateways that support only 403."
_DENY: Final = _parameter("deny", "query", {"enum": ["403", "429"]}, _ONLY_403)
_ANY_PATH: Final = "The path of the original request, with any number of segments."
_PATH: Final = _parameter("path", "path", {"type": "string"}, _ANY_PATH)
_ALLOWED: Final = _response("Allowed.", "Decision", is_decision=True)
_HELD: Final = _response("The amount is held.", "Reservation", is_decision=True)
_LIMITS: Final = {200: _response("The limits.", "Standing")}
_READY: Final = {
    200: _response("Ready; the reasons list problems, if any.", "Health"),
    503: _response("Not ready, with the reasons.", "Health"),
}
_RLS: Final = {200: _response("Allowed.", _JSON), 429: _response("Denied.", _JSON)}

PATHS: Final[Mapping[str, Fragment]] = {
    "/v1/check": {
        "post": _operation(
            "check",
            "Decide the request that the body describes.",
            _decisions(_ALLOWED, "DeniedDecision"),
            problems=_OF_BODY,
            body="CheckRequest",
        )
    },
    "/v1/authorize": _authorize("authorize", "Decide the request in a gateway's headers.", _DENY),
    "/v1/authorize/{path}": _authorize(
        "authorizePath", "Decide the request behind the prefix.", _PATH
    ),
    "/v1/rate_limit": {
        "get": _operation(
            "rateLimit", "All limits of this caller; consumes nothing.", _LIMITS, problems=(503,)
        ),
        "post": _operation(
            "rateLimitOf",
            "All limits of the caller that the body describes; consumes nothing.",
            _LIMITS,
            problems=(*_OF_BODY, 503),
            body="CallerRequest",
        ),
    },
    "/v1/reservations": {
        "post": _operation(
            "reserve",
            "Hold an amount until it is settled or expires.",
            _decisions(_HELD, "DeniedDecision", status=201),
            problems=(*_OF_BODY, 422),
            body="ReservationRequest",
        )
    },
    "/v1/reservations/{id}/commit": {
        "post": _operation(
            "commit",
            "Charge the actual cost, even above the reserved amount.",
            {200: _response("Settled.", "Settlement")},
            problems=(*_OF_BODY, 404, 409, 410, 503),
            body="CommitRequest",
            needs_body=False,
            parameter=_ID,
        )
    },
    "/v1/reservations/{id}": {
        "delete": _operation(
            "cancel",
            "Return the reserved amount.",
            {204: _response("Cancelled.")},
            problems=(404, 409, 410, 503),
            parameter=_ID,
        )
    },
    "/healthz": _get("alive", "Liveness.", "The process is alive.", "Health"),
    "/readyz": {"get": _operation("ready", "Readiness.", _READY)},
    "/metrics": _get(
        "metrics", "Metrics for Prometheus.", "The text format of Prometheus.", "text/plain"
    ),
    "/openapi.json": _get("openapi", "This document.", "The document.", _JSON),
    "/": _get("index", "The dashboard, or a list of endpoints.", "A page or a text.", "text/plain"),
}
RLS_PATHS: Final[Mapping[str, Fragment]] = {
    "/json": {
        "post": _operation("rlsJson", "Envoy's rate limit service, as JSON.", _RLS, body=_JSON)
    }
}


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
    headers = {
        name: {"description": text, "schema": {"type": kind}}
        for name, (kind, text) in HEADERS.items()
    }
    secured = {"securitySchemes": dict(schemes)} if schemes else {}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headgate",
            "description": "Rate limit decisions for requests.",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": {**PATHS, **(RLS_PATHS if has_rls else {}), **paths},
        "components": {
            "schemas": {**REQUESTS, **RESPONSES},
            "headers": headers,
            **secured,
        },
    }
