"""The request that a body describes, and its options.

All fields are validated, so the reply lists all errors at once, up to `MAX_ERRORS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice
from sys import intern
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.engine.request import Request
from headgate.errors import nearest
from headgate.policy.identity.address import read_address
from headgate.policy.path import LONGEST
from headgate.policy.problems import did_you_mean, expected_one_of
from headgate.service.http.body import described
from headgate.service.http.replies import Flaw, RejectedError, problem
from headgate.service.http.schemas import AMOUNT, FLAG, TEXT, a_list, a_map, an_object, of
from headgate.stores.base import LARGEST_AMOUNT

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from headgate.policy.compiled import Costs
    from headgate.service.http.body import Document
    from headgate.service.http.schemas import Schema

LONGEST_METHOD: Final = 64
DEFAULT_TTL: Final = 60.0
MAX_ERRORS: Final = 20
"""Errors that are listed at most, so that a reply is not many times as large as the body."""


class RequestedCheck(NamedTuple):
    """A request and the options of its check. *ttl* in seconds."""

    request: Request
    cost: Costs = None
    peek: bool = False
    ttl: float = DEFAULT_TTL


class BodyFields(NamedTuple):
    """The fields of a body, the required ones, and what the cost means in it."""

    fields: tuple[str, ...]
    required: tuple[str, ...] = ()
    cost: str = ""

    def schema(self) -> Schema:
        """The JSON Schema of the body."""
        fields = {name: _FIELDS[name].schema for name in self.fields}
        if self.cost:
            fields["cost"] = {**fields["cost"], "description": self.cost}
        return an_object(*(name for name in fields if name not in self.required), **fields)


_CALLER: Final = ("method", "path", "host", "headers", "ip", "attributes")

CALLER_FIELDS: Final = BodyFields(_CALLER)
CHECK_FIELDS: Final = BodyFields(
    (*_CALLER, "cost", "peek"),
    ("path",),
    "For all rules, or by rule id. Default: the cost that each rule defines.",
)
RESERVATION_FIELDS: Final = BodyFields(
    (*_CALLER, "cost", "ttl"), ("path", "cost"), "At least 1 for each rule that holds an amount."
)
COMMIT_FIELDS: Final = BodyFields(("cost",), (), "Default: the reserved amount.")


class Flaws(list[Flaw]):
    """The errors found so far."""

    def add(self, field: str, value: object, expected: str) -> None:
        self.append(Flaw(field, f"found {described(value)}", f"expected {expected}"))

    def add_unknown(self, name: str, known: Sequence[str], what: str = "field") -> None:
        """Add that *name* is none of the *known* fields, or parameters."""
        near = nearest(name, known) if len(self) < MAX_ERRORS else None
        if near is not None:
            hint = did_you_mean(near)
        elif len(known) > 1:
            hint = expected_one_of(known)
        else:
            hint = f"expected {known[0] if known else 'none'}"
        self.append(Flaw(name[:40], f"no such {what}", hint))


def read_check(
    document: Document, body: BodyFields, *, longest_ttl: float = DEFAULT_TTL
) -> RequestedCheck:
    """Validate *document*. Raises `RejectedError` with all errors."""
    found, flaws = read_fields(document, body)
    cost, peek = found.pop("cost", None), found.pop("peek", False)
    ttl = DEFAULT_TTL
    if "ttl" in body.fields:
        ttl = float(found.pop("ttl", min(DEFAULT_TTL, longest_ttl)))
        _check_hold(ttl, longest_ttl, cost, flaws)
    if flaws:
        raise invalid(flaws)
    if "ip" in found:
        found["peer"] = found.pop("ip")
    if "headers" in found and "host" not in found:
        for name, value in found["headers"]:
            if name.lower() == "host":
                found["host"] = value
                break
    return RequestedCheck(Request(**found), cost, peek, ttl)


def read_fields(document: Document, body: BodyFields) -> tuple[dict[str, Any], Flaws]:
    """The validated fields of *document*, and its errors."""
    flaws = Flaws()
    found: dict[str, Any] = {}
    for name, value in document.items():
        if name not in body.fields:
            flaws.add_unknown(name, sorted(body.fields))
        elif (field := _FIELDS[name]).is_valid(value):
            found[name] = value if field.read is None else field.read(value, flaws)
        else:
            flaws.add(name, value, field.expected)
    for name in body.required:
        if name not in document:
            flaws.append(Flaw(name, "it is missing", f"expected {_FIELDS[name].expected}"))
    return found, flaws


def invalid(flaws: Collection[Flaw]) -> RejectedError:
    """The 400 response for a body with *flaws*."""
    count = "1 error" if len(flaws) == 1 else f"{len(flaws)} errors"
    listed = [flaw.to_data() for flaw in islice(flaws, MAX_ERRORS)]
    more = "" if len(listed) == len(flaws) else f"; these are the first {MAX_ERRORS}"
    return RejectedError(problem(400, f"the body has {count}{more}", errors=listed))


def _check_hold(ttl: float, longest: float, cost: object, flaws: Flaws) -> None:
    if ttl > longest:
        flaws.append(Flaw("ttl", f"found {ttl:g}", f"expected at most {longest:g} seconds"))
    amounts = cost.values() if isinstance(cost, Mapping) else (cost,)
    if cost is not None and not (amounts and all(amounts)):
        flaws.append(Flaw("cost", "reserves nothing", "expected at least 1"))


# The fields of bodies. Values have exact types: `True` is not a number.


class _Field(NamedTuple):
    """A field: its JSON Schema, whether a value is valid, words for a valid one, and how it is
    read."""

    schema: Schema
    is_valid: Callable[[Any], bool]
    expected: str
    read: Callable[[Any, Flaws], Any] | None = None


def _is_method(value: Any) -> bool:
    return type(value) is str and 0 < len(value) <= LONGEST_METHOD and value.isascii()


def _is_path(value: Any) -> bool:
    return type(value) is str and value[:1] in ("/", "*")


_OCTET: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4: Final = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}")


def _is_address(value: Any) -> bool:
    if type(value) is not str:
        return False
    # The common case takes a tenth of the time of `read_address`.
    return _IPV4.fullmatch(value) is not None or read_address(value) is not None


def _is_amount(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_AMOUNT


def _is_ttl(value: Any) -> bool:
    return type(value) in (int, float) and 0.001 <= value <= 1e9


def _without_query(value: str, _flaws: Flaws) -> str:
    return value if "?" not in value else value.partition("?")[0]


def _headers(value: Any, flaws: Flaws) -> tuple[tuple[str, str], ...]:
    lines: list[tuple[str, str]] = []
    if type(value) is dict:
        for name, text in value.items():
            if type(text) is str and name:
                lines.append((name, text))
            else:
                lines += _several(name, text, flaws)
        return tuple(lines)
    for place, pair in enumerate(value):
        match pair:
            case [str(name), str(text)] if name:
                lines.append((name, text))
            case _:
                flaws.add(f"headers[{place}]", pair, "a pair [name, value] of texts")
    return tuple(lines)


def _several(name: str, texts: Any, flaws: Flaws) -> list[tuple[str, str]]:
    """The lines of a header with several values."""
    if not name:
        flaws.append(Flaw("headers", "a header without a name", "expected a name"))
    elif type(texts) is list and all(type(text) is str for text in texts):
        return [(name, text) for text in texts]
    else:
        flaws.add(f"headers.{name[:40]}", texts, "a text or a list of texts")
    return []


def _attributes(value: dict[str, Any], flaws: Flaws) -> Mapping[str, str]:
    for name, text in value.items():
        if type(text) is not str:
            flaws.add(f"attributes.{name[:40]}", text, "a text")
    return value


def _cost(value: Any, flaws: Flaws) -> int | dict[str, int]:
    if type(value) is dict:
        for rule, amount in value.items():
            if not _is_amount(amount):
                flaws.add(f"cost.{rule[:40]}", amount, _INTEGER)
    found: int | dict[str, int] = value
    return found


_INTEGER: Final = f"an integer from 0 to {LARGEST_AMOUNT}"
_FIELDS: Final = {
    "method": _Field(
        of("string", minLength=1, maxLength=LONGEST_METHOD, default="GET"),
        _is_method,
        f"a method such as POST, at most {LONGEST_METHOD} characters",
        lambda value, _: intern(value.upper()),
    ),
    "path": _Field(
        of(
            "string",
            "As received, not decoded. A query is ignored. A request whose path has more than "
            f"{LONGEST} characters is denied with 414.",
            pattern="^[/*]",
        ),
        _is_path,
        "a path that begins with /",
        _without_query,
    ),
    "host": _Field(
        of("string", "Default: the Host header."),
        lambda value: type(value) is str,
        "a text such as api.example.com",
    ),
    "headers": _Field(
        {
            "oneOf": [
                a_map({"oneOf": [TEXT, a_list(TEXT)]}),
                a_list(of("array", items=TEXT, minItems=2, maxItems=2)),
            ],
            "description": "Names and values, or a list of pairs.",
        },
        lambda value: type(value) in (dict, list),
        "an object of names and texts, or a list of pairs",
        _headers,
    ),
    "ip": _Field(
        of("string", "The peer address of the request: a client's or a proxy's."),
        _is_address,
        "an address such as 203.0.113.7 or 2001:db8::1",
    ),
    "attributes": _Field(
        {**a_map(TEXT), "description": "Other attributes that rules can match."},
        lambda value: type(value) is dict,
        "an object of names and texts",
        _attributes,
    ),
    "cost": _Field(
        {"oneOf": [AMOUNT, a_map(AMOUNT)]},
        lambda value: type(value) is dict or _is_amount(value),
        f"{_INTEGER}, or an object of such by the ids of rules",
        _cost,
    ),
    "peek": _Field(FLAG, lambda value: type(value) is bool, "true or false"),
    "ttl": _Field(
        of("number", "Seconds.", minimum=0.001, default=60), _is_ttl, "seconds, at least 0.001"
    ),
}

REQUESTS: Final = {
    "CheckRequest": CHECK_FIELDS.schema(),
    "CallerRequest": CALLER_FIELDS.schema(),
    "ReservationRequest": RESERVATION_FIELDS.schema(),
    "CommitRequest": COMMIT_FIELDS.schema(),
}
"""The schemas of bodies of requests, by name."""
