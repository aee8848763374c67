"""The OpenAPI document, derived from the declarations of operations and bodies."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headgate import __version__
from headgate.service.http.schemas import NAMED, body_schema

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


@dataclass(frozen=True, slots=True)
class Response:
    """A response with a body of *kind*, and rate limit headers if it *is_decision*.

    A *kind* is a schema by name, or a media type. *denies* adds `Retry-After`, and *or_problem* is
    for a status that problems have too.
    """

    description: str
    kind: str | None = None
    is_decision: bool = False
    denies: bool = False
    or_problem: bool = False

    def to_openapi(self) -> Fragment:
        found: Fragment = {"description": self.description}
        if self.is_decision:
            names = [name for name in HEADERS if self.denies or name != "Retry-After"]
            found["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
        if self.kind is not None and "/" in self.kind:
            plain = "object" if self.kind == _JSON else "string"
            found["content"] = {self.kind: {"schema": {"type": plain}}}
        elif self.kind is not None:
            content = {_JSON: _ref(self.kind)} | (
                {_PROBLEM: _ref(self.kind)} if self.denies else {}
            )
            if self.or_problem:
                content[_PROBLEM] = {"anyOf": [_ref(self.kind), _ref("Problem")]}
            found["content"] = {media: {"schema": schema} for media, schema in content.items()}
        return found


@dataclass(frozen=True, slots=True)
class Operation:
    """The method and path in *line*. *body* is a schema by name; *problems* are statuses."""

    line: str
    name: str
    summary: str
    responses: Mapping[int, Response]
    problems: tuple[int, ...] = ()
    body: str | None = None
    needs_body: bool = True
    parameters: tuple[Fragment, ...] = ()

    @property
    def method(self) -> str:
        return self.line.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.line.partition(" ")[2]

    def to_openapi(self) -> Fragment:
        responses = {str(status): one.to_openapi() for status, one in self.responses.items()}
        for status in self.problems:
            content = {_PROBLEM: {"schema": _ref("Problem")}}
            responses[str(status)] = {"description": _WHY[status], "content": content}
        found: Fragment = {
            "operationId": self.name,
            "summary": self.summary,
            "responses": responses,
        }
        if self.body is not None:
            schema = {"type": "object"} if self.body == _JSON else _ref(self.body)
            found["requestBody"] = {
                "required": self.needs_body,
                "content": {_JSON: {"schema": schema}},
            }
        return found | ({"parameters": list(self.parameters)} if self.parameters else {})


def _ref(name: str) -> Fragment:
    return {"$ref": f"#/components/schemas/{name}"}


def _decisions(allowed: Response, denial: str) -> dict[int, Response]:
    """The responses of an operation that decides."""
    return {
        201 if allowed.kind == "Reservation" else 200: allowed,
        429: Response("Denied.", denial, is_decision=True, denies=True),
        503: Response(_OUTAGE, denial, is_decision=True, denies=True, or_problem=True),
    }


def _authorize(path: str, name: str, summary: str, parameter: Fragment) -> list[Operation]:
    """The operations of a path that takes any method."""
    allowed = Response("Allowed. If the request has to wait, so does the answer.", is_decision=True)
    why = "The peer is not a trusted gateway; or denied, if deny is 403."
    forbidden = Response(why, "Refusal", is_decision=True, denies=True, or_problem=True)
    return [
        Operation(
            f"{method} {path}",
            f"{name}{method.capitalize()}",
            summary,
            {**_decisions(allowed, "Refusal"), 403: forbidden},
            problems=(400, 414, 431),
            parameters=(parameter,),
        )
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
    ]


def _parameter(name: str, place: str, schema: Fragment, description: str = "") -> Fragment:
    found: Fragment = {"name": name, "in": place, "schema": schema}
    found |= {"description": description} if description else {}
    return found | ({"required": True} if place == "path" else {})


_ID: Final = _parameter("id", "path", {"type": "string"})
_DENY: Final = _parameter(
    "deny",
    "query",
    {"enum": ["403", "429"]},
    "The status of denials, for gateways that support only 403.",
)
_PATH: Final = _parameter(
    "path",
    "path",
    {"type": "string"},
    "The path of the original request, with any number of segments.",
)
_CHECKED: Final = _decisions(Response("Allowed.", "Decision", is_decision=True), "DeniedDecision")
_HELD: Final = _decisions(
    Response("The amount is held.", "Reservation", is_decision=True), "DeniedDecision"
)
_LIMITS: Final = {200: Response("The limits.", "Standing")}
_ALIVE: Final = {200: Response("The process is alive.", "Health")}
_READY: Final = {
    200: Response("Ready; the reasons list problems, if any.", "Health"),
    503: Response("Not ready, with the reasons.", "Health"),
}
_METRICS: Final = {200: Response("The text format of Prometheus.", "text/plain")}
_RLS: Final = {200: Response("Allowed.", _JSON), 429: Response("Denied.", _JSON)}

OPERATIONS: Final = (
    Operation(
        "POST /v1/check",
        "check",
        "Decide the request that the body describes.",
        _CHECKED,
        problems=_OF_BODY,
        body="CheckRequest",
    ),
    *_authorize("/v1/authorize", "authorize", "Decide the request in a gateway's headers.", _DENY),
    *_authorize(
        "/v1/authorize/{path}", "authorizePath", "Decide the request behind the prefix.", _PATH
    ),
    Operation(
        "GET /v1/rate_limit",
        "rateLimit",
        "All limits of this caller; consumes nothing.",
        _LIMITS,
        problems=(503,),
    ),
    Operation(
        "POST /v1/rate_limit",
        "rateLimitOf",
        "All limits of the caller that the body describes; consumes nothing.",
        _LIMITS,
        problems=(*_OF_BODY, 503),
        body="CallerRequest",
    ),
    Operation(
        "POST /v1/reservations",
        "reserve",
        "Hold an amount until it is settled or expires.",
        _HELD,
        problems=(*_OF_BODY, 422),
        body="ReservationRequest",
    ),
    Operation(
        "POST /v1/reservations/{id}/commit",
        "commit",
        "Charge the actual cost, even above the reserved amount.",
        {200: Response("Settled.", "Settlement")},
        problems=(*_OF_BODY, 404, 409, 410, 503),
        body="CommitRequest",
        needs_body=False,
        parameters=(_ID,),
    ),
    Operation(
        "DELETE /v1/reservations/{id}",
        "cancel",
        "Return the reserved amount.",
        {204: Response("Cancelled.")},
        problems=(404, 409, 410, 503),
        parameters=(_ID,),
    ),
    Operation("GET /healthz", "alive", "Liveness.", _ALIVE),
    Operation("GET /readyz", "ready", "Readiness.", _READY),
    Operation("GET /metrics", "metrics", "Metrics for Prometheus.", _METRICS),
    Operation(
        "GET /openapi.json", "openapi", "This document.", {200: Response("The document.", _JSON)}
    ),
    Operation(
        "GET /",
        "index",
        "The dashboard, or a list of endpoints.",
        {200: Response("A page or a text.", "text/plain")},
    ),
)
RLS_JSON: Final = Operation(
    "POST /json", "rlsJson", "Envoy's rate limit service, as JSON.", _RLS, body=_JSON
)


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
    own: dict[str, Fragment] = {}
    for one in (*OPERATIONS, RLS_JSON) if has_rls else OPERATIONS:
        own.setdefault(one.path, {})[one.method.lower()] = one.to_openapi()
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
        "paths": {**own, **paths},
        "components": {
            "schemas": {one.__name__: body_schema(one) for one in NAMED},
            "headers": headers,
            **secured,
        },
    }
