"""The declaration of an operation of the admin API, from which routes and OpenAPI are derived."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.service.http.schemas import TEXT, WHOLE, an_object, of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from headgate.config.values import Role
    from headgate.service.admin.call import Call
    from headgate.service.http.replies import Reply
    from headgate.service.http.schemas import Schema

    Handler = Callable[[Call], Awaitable[Reply]]

PREFIX: Final = "/admin/v1"
SECURITY_SCHEME: Final = "adminToken"
SECURITY_SCHEMES: Final[Mapping[str, Schema]] = MappingProxyType(
    {SECURITY_SCHEME: {"type": "http", "scheme": "bearer", "description": "HEADGATE_ADMIN_TOKEN"}}
)
"""For `components.securitySchemes`."""

ANY: Final = of("object")
MOMENT: Final = of("string", format="date-time")
NOTHING: Final = an_object()
RULE: Final = of(
    "object",
    "A rule as in a policy file, without its id; see `headgate rules schema`.",
    examples=[{"match": {"endpoint": "/login"}, "key_by": "ip", "limit": "5/minute"}],
)
POLICY: Final = of(
    "object", "A policy as in a file; see `headgate rules schema`.", required=["version"]
)
REQUEST: Final = of(
    "object",
    "A request as in /v1/check.",
    required=["path"],
    examples=[{"method": "POST", "path": "/login", "ip": "203.0.113.7"}],
)
PROBLEM: Final = an_object(
    *("rule_id", "field", "hint", "line"),
    severity={"enum": ["error", "warning"]},
    rule_id=TEXT,
    field=TEXT,
    message=TEXT,
    hint=TEXT,
    line=WHOLE,
)


class Query(NamedTuple):
    """A parameter of the query."""

    name: str
    meaning: str = ""
    schema: Schema = TEXT


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path, *line*: `PUT /rules/{rule_id}`. A decorator of its *handler*.

    The docstring of the handler is its summary. A *role* of `write` changes something; unless
    *is_versionless*, such an operation takes preconditions (`If-Match`).
    """

    line: str
    _: KW_ONLY
    answer: Schema = field(default_factory=lambda: ANY)
    body: Schema | None = None
    query: tuple[Query, ...] = ()
    role: Role = "read"
    is_versionless: bool = False
    handler: Handler | None = None

    def __call__(self, handler: Handler) -> Operation:
        """Declare *handler* as the one of this operation."""
        return replace(self, handler=handler)

    @property
    def method(self) -> str:
        return self.line.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.line.partition(" ")[2]

    @property
    def needs_body(self) -> bool:
        """True unless there is no body, or all fields of the body are optional."""
        body = self.body
        return body is not None and ("properties" not in body or "required" in body)

    @property
    def is_edit(self) -> bool:
        """True if it takes preconditions."""
        return self.role == "write" and not self.is_versionless

    def to_openapi(self) -> Schema:
        """Describe the operation for an OpenAPI document."""
        parameters: list[Schema] = [
            {"name": name, "in": "query", "description": meaning, "schema": schema}
            for name, meaning, schema in self.query
        ]
        if self.is_edit:
            meaning = "The expected version of the rule (else of the policy); 412 if it differs."
            parameters.append(
                {"name": "If-Match", "in": "header", "description": meaning, "schema": TEXT}
            )
        problem = {"application/problem+json": {"schema": ANY}}
        described: Schema = {
            "summary": " ".join((getattr(self.handler, "__doc__", "") or "").split()),
            "tags": ["admin"],
            "security": [{SECURITY_SCHEME: []}],
            "responses": {
                "200": {"description": "Done.", "content": _json(self.answer)},
                "default": {"description": "The problem.", "content": problem},
            },
        }
        if parameters:
            described["parameters"] = parameters
        if self.body is not None:
            described["requestBody"] = {"required": self.needs_body, "content": _json(self.body)}
        return described


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}
