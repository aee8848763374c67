"""The declaration of an operation of the admin API, from which routes and OpenAPI are derived."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from headgate.service.admin.auth import Role

    Handler = TypeVar("Handler", bound=Callable[..., Any])

Schema = dict[str, Any]
PREFIX: Final = "/admin/v1"
SECURITY_SCHEME: Final = "adminToken"
SECURITY_SCHEMES: Final[Mapping[str, Schema]] = MappingProxyType(
    {SECURITY_SCHEME: {"type": "http", "scheme": "bearer", "description": "HEADGATE_ADMIN_TOKEN"}}
)
"""For `components.securitySchemes`."""


def an_object(required: tuple[str, ...] = (), **fields: Schema) -> Schema:
    """An object with these *fields* and no others."""
    return {
        "type": "object",
        "properties": fields,
        "required": list(required),
        "additionalProperties": False,
    }


def a_list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


WHOLE: Final[Schema] = {"type": "integer", "minimum": 0}
NUMBER: Final[Schema] = {"type": "number"}
TEXT: Final[Schema] = {"type": "string"}
ANY: Final[Schema] = {"type": "object"}
MOMENT: Final[Schema] = {"type": "string", "format": "date-time"}
NOTHING: Final = an_object()
RULE: Final[Schema] = {
    "type": "object",
    "description": "A rule as in a policy file, without its id; see `headgate rules schema`.",
    "examples": [{"match": {"endpoint": "/login"}, "key_by": "ip", "limit": "5/minute"}],
}
POLICY: Final[Schema] = {
    "type": "object",
    "description": "A policy as in a file; see `headgate rules schema`.",
    "required": ["version"],
}
REQUEST: Final[Schema] = {
    "type": "object",
    "description": "A request as /v1/check has.",
    "required": ["path"],
    "examples": [{"method": "POST", "path": "/login", "ip": "203.0.113.7"}],
}
PROBLEM: Final = an_object(
    ("severity", "message"),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path. *is_edit*: it takes preconditions (`If-Match`)."""

    method: str
    path: str
    summary: str
    role: Role
    answer: Schema
    body: Schema | None
    needs_body: bool
    query: tuple[Query, ...]
    is_edit: bool

    def to_openapi(self, security: str | None) -> Schema:
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
        failure = {"description": "The problem.", "content": _content(ANY, problem=True)}
        described: Schema = {
            "summary": self.summary,
            "tags": ["admin"],
            "responses": {
                "200": {"description": "Done.", "content": _content(self.answer)},
                "default": failure,
            },
        }
        if parameters:
            described["parameters"] = parameters
        if self.body is not None:
            content = _content(self.body)
            described["requestBody"] = {"required": self.needs_body, "content": content}
        if security:
            described["security"] = [{security: []}]
        return described


def operation(
    line: str,
    summary: str,
    *,
    answer: Schema = ANY,
    body: Schema | None = None,
    needs_body: bool = True,
    query: tuple[Query, ...] = (),
    role: Role = "read",
    is_edit: bool | None = None,
) -> Callable[[Handler], Handler]:
    """Declare a method as the handler of *line*, such as `PUT /rules/{rule_id}`."""
    method, path = line.split(" ")
    declared = Operation(
        method=method,
        path=path,
        summary=summary,
        role=role,
        answer=answer,
        body=body,
        needs_body=needs_body,
        query=query,
        is_edit=role == "write" if is_edit is None else is_edit,
    )

    def decorate(handler: Handler) -> Handler:
        handler.operation = declared  # type: ignore[attr-defined]
        return handler

    return decorate


def operations_of(owner: type) -> Iterator[tuple[str, Operation]]:
    """The operations that *owner* declares, each with the name of its handler."""
    for name, member in vars(owner).items():
        declared = getattr(member, "operation", None)
        if isinstance(declared, Operation):
            yield name, declared


_IN_PATHS: Final = {"rule_id": TEXT, "number": WHOLE}


def paths_of(owners: Iterable[type], *, security: str | None = None) -> dict[str, Schema]:
    """The OpenAPI paths of *owners*; *security* names the scheme that they need."""
    paths: dict[str, Schema] = {}
    for owner in owners:
        for _, one in operations_of(owner):
            item = paths.setdefault(f"{PREFIX}{one.path}", {})
            item[one.method.lower()] = one.to_openapi(security)
            named = [name for name in _IN_PATHS if f"{{{name}}}" in one.path]
            if named:
                item["parameters"] = [
                    {"name": name, "in": "path", "required": True, "schema": _IN_PATHS[name]}
                    for name in named
                ]
    return paths


def _content(schema: Schema, *, problem: bool = False) -> Schema:
    return {"application/problem+json" if problem else "application/json": {"schema": schema}}
