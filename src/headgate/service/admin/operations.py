"""The declaration of an operation of the admin API, from which routes and OpenAPI are derived."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.service.http.replies import Flaw
from headgate.service.http.schemas import TEXT, WHOLE, an_object, of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from headgate.config.values import Role
    from headgate.service.admin.call import Call
    from headgate.service.http.check_request import Flaws
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
YAML: Final = "application/yaml"
RULE: Final = of(
    "object",
    "A rule as in a policy file, without its id; see `headgate rules schema`. It may be sent as "
    "application/yaml: errors then have a line and a column.",
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
    *("rule_id", "field", "hint", "line", "column"),
    severity={"enum": ["error", "warning"]},
    rule_id=TEXT,
    field=TEXT,
    message=TEXT,
    hint=TEXT,
    line=WHOLE,
    column=WHOLE,
)


class Query(NamedTuple):
    """A parameter of the query."""

    name: str
    meaning: str = ""
    schema: Schema = TEXT

    def read(self, text: str, flaws: Flaws) -> str | int:
        """The value that *text* stands for; what is wrong with it is added to *flaws*."""
        is_whole = self.schema.get("type") == "integer" and _DIGITS.fullmatch(text)
        value = int(text) if is_whole else text
        check_value(self.name, value, self.schema, flaws)
        return value


def check_fields(body: Mapping[str, Any], schema: Schema, flaws: Flaws) -> None:
    """Add to *flaws* what is wrong with the fields of *body* by *schema*, an object's."""
    known = schema["properties"]
    for name in body:
        if name not in known:
            flaws.add_unknown(name, sorted(known))
    for name, one in known.items():
        if name in body:
            check_value(name, body[name], one, flaws)
        elif name in schema.get("required", ()):
            flaws.append(Flaw(name, "it is missing", f"expected {_expected(one)}"))


def check_value(name: str, value: Any, schema: Schema, flaws: Flaws) -> None:
    """Add to *flaws* that *value* is not of *schema*: an enumeration, or a type with bounds."""
    if "enum" in schema:
        is_valid = value in schema["enum"]
    else:
        is_valid = type(value) in _TYPES[schema["type"]]
    if is_valid and type(value) is str:
        is_valid = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", inf)
    elif is_valid and type(value) is not dict:
        is_valid = schema.get("minimum", -inf) <= value <= schema.get("maximum", inf)
    if not is_valid:
        flaws.add(name, value, _expected(schema))


_TYPES: Final = {"string": (str,), "integer": (int,), "number": (int, float), "object": (dict,)}
_DIGITS: Final = re.compile(r"[0-9]{1,18}")


def _expected(schema: Schema) -> str:
    """Words for a value of *schema*."""
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    if "minimum" in schema:
        kind = "a whole number" if schema["type"] == "integer" else "a number"
        return f"{kind} from {schema['minimum']} to {schema['maximum']}"
    if schema["type"] == "object":
        return "an object"
    meaning = schema.get("description", "A text.").removesuffix(".")
    return f"{meaning[0].lower()}{meaning[1:]}"


def whole(most: int, least: int = 0) -> Schema:
    """A whole number from *least* to *most*."""
    return of("integer", minimum=least, maximum=most)


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
