"""The request that a body describes, and its options.

All fields are validated, so the reply lists all errors at once, up to `MAX_ERRORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.engine.request import NOTHING, Request
from headgate.policy.diagnostics import choosing, closest, meaning
from headgate.policy.identity.address import read_address
from headgate.service.http.body import described
from headgate.service.http.replies import Flaw, RefusedError, problem
from headgate.stores.base import LARGEST_AMOUNT

if TYPE_CHECKING:
    from collections.abc import Collection

    from headgate.policy.compiled import Costs
    from headgate.service.http.body import Document

LONGEST_METHOD: Final = 64
LONGEST_PATH: Final = 8_192
DEFAULT_TTL: Final = 60.0
MAX_ERRORS: Final = 20
"""Errors that are listed at most, so that a reply is not many times as large as the body."""
_INTEGER: Final = f"an integer from 0 to {LARGEST_AMOUNT}"


class CheckRequest(NamedTuple):
    """A request and the options of its check. *ttl* in seconds."""

    request: Request
    cost: Costs = None
    peek: bool = False
    ttl: float = DEFAULT_TTL


class BodyFields(NamedTuple):
    """The allowed and the required fields of a body."""

    fields: frozenset[str]
    required: tuple[str, ...] = ()


_OF_REQUEST: Final = frozenset({"method", "path", "host", "headers", "ip", "attributes"})
TO_CHECK: Final = BodyFields(_OF_REQUEST | {"cost", "peek"}, ("path",))
TO_LOOK: Final = BodyFields(_OF_REQUEST)
TO_RESERVE: Final = BodyFields(_OF_REQUEST | {"cost", "ttl"}, ("path", "cost"))
TO_COMMIT: Final = BodyFields(frozenset({"cost"}))


class Flaws(list[Flaw]):
    """The errors found so far."""

    def add(self, field: str, value: object, expected: str) -> None:
        self.append(Flaw(field, f"found {described(value)}", f"expected {expected}"))


def read_asked(
    document: Document, wanted: BodyFields, *, longest_ttl: float = DEFAULT_TTL
) -> CheckRequest:
    """Validate *document*. Raises `RefusedError` with all errors."""
    found, flaws = read_fields(document, wanted)
    cost, peek = found.pop("cost", None), found.pop("peek", False)
    ttl = DEFAULT_TTL
    if "ttl" in wanted.fields:
        ttl = found.pop("ttl", min(DEFAULT_TTL, longest_ttl))
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
    return CheckRequest(Request(**found), cost, peek, ttl)


def read_fields(document: Document, wanted: BodyFields) -> tuple[dict[str, Any], Flaws]:
    """The validated fields of *document*, and its errors."""
    flaws = Flaws()
    found: dict[str, Any] = {}
    for name, value in document.items():
        if name in wanted.fields:
            found[name] = _READERS[name](value, flaws)
        else:
            _unknown(name, wanted.fields, flaws)
    for name in wanted.required:
        if name not in document:
            flaws.append(Flaw(name, "it is missing", f"expected {_EXPECTED[name]}"))
    return found, flaws


def invalid(flaws: Collection[Flaw]) -> RefusedError:
    """The 400 response for a body with *flaws*."""
    count = "1 error" if len(flaws) == 1 else f"{len(flaws)} errors"
    listed = tuple(islice(flaws, MAX_ERRORS))
    more = "" if len(listed) == len(flaws) else f"; these are the first {MAX_ERRORS}"
    return RefusedError(problem(400, f"the body has {count}{more}", flaws=listed))


def _unknown(name: str, fields: Collection[str], flaws: Flaws) -> None:
    known = sorted(fields)
    near = closest(name, known) if len(flaws) < MAX_ERRORS else None
    hint = choosing(known) if near is None else meaning(near)
    flaws.append(Flaw(name[:40], "no such field", hint))


def _check_hold(ttl: float, longest: float, cost: object, flaws: Flaws) -> None:
    if ttl > longest:
        flaws.append(Flaw("ttl", f"found {ttl:g}", f"expected at most {longest:g} seconds"))
    amounts = cost.values() if isinstance(cost, Mapping) else (cost,)
    if cost is not None and not (amounts and all(amounts)):
        flaws.append(Flaw("cost", "reserves nothing", "expected at least 1"))


def _method(value: Any, flaws: Flaws) -> str:
    if type(value) is str and 0 < len(value) <= LONGEST_METHOD and value.isascii():
        return value.upper()
    flaws.add("method", value, _EXPECTED["method"])
    return "GET"


def _path(value: Any, flaws: Flaws) -> str:
    if type(value) is str and value[:1] in ("/", "*") and len(value) <= LONGEST_PATH:
        return value if "?" not in value else value.partition("?")[0]
    flaws.add("path", value, _EXPECTED["path"])
    return "/"


def _host(value: Any, flaws: Flaws) -> str:
    if type(value) is str:
        return value
    flaws.add("host", value, _EXPECTED["host"])
    return ""


def _ip(value: Any, flaws: Flaws) -> str:
    if type(value) is str and _is_address(value):
        return value
    flaws.add("ip", value, _EXPECTED["ip"])
    return ""


@lru_cache(maxsize=4096)
def _is_address(text: str) -> bool:
    return read_address(text) is not None


def _headers(value: Any, flaws: Flaws) -> tuple[tuple[str, str], ...]:
    lines: list[tuple[str, str]] = []
    if type(value) is dict:
        for name, text in value.items():
            if type(text) is str and name:
                lines.append((name, text))
            else:
                lines += _several(name, text, flaws)
    elif type(value) is list:
        for place, pair in enumerate(value):
            match pair:
                case [str(name), str(text)] if name:
                    lines.append((name, text))
                case _:
                    flaws.add(f"headers[{place}]", pair, "a pair [name, value] of texts")
    else:
        flaws.add("headers", value, _EXPECTED["headers"])
    return tuple(lines)


def _several(name: str, texts: Any, flaws: Flaws) -> list[tuple[str, str]]:
    """The lines of a header with several values."""
    if not name:
        flaws.append(Flaw("headers", "a header without a name", "expected a name"))
        return []
    if type(texts) is list and all(type(text) is str for text in texts):
        return [(name, text) for text in texts]
    flaws.add(f"headers.{name[:40]}", texts, "a text or a list of texts")
    return []


def _attributes(value: Any, flaws: Flaws) -> Mapping[str, str]:
    if type(value) is not dict:
        flaws.add("attributes", value, _EXPECTED["attributes"])
        return NOTHING
    for name, text in value.items():
        if type(text) is not str:
            flaws.add(f"attributes.{name[:40]}", text, "a text")
    return value


def _cost(value: Any, flaws: Flaws) -> int | dict[str, int]:
    if type(value) is int and 0 <= value <= LARGEST_AMOUNT:
        return value
    if type(value) is not dict:
        flaws.add("cost", value, _EXPECTED["cost"])
        return 0
    for rule, amount in value.items():
        if type(amount) is not int or not 0 <= amount <= LARGEST_AMOUNT:
            flaws.add(f"cost.{rule[:40]}", amount, _INTEGER)
    return value


def _peek(value: Any, flaws: Flaws) -> bool:
    if type(value) is bool:
        return value
    flaws.add("peek", value, _EXPECTED["peek"])
    return False


def _ttl(value: Any, flaws: Flaws) -> float:
    if type(value) in (int, float) and 0.001 <= value <= 1e9:
        return float(value)
    flaws.add("ttl", value, _EXPECTED["ttl"])
    return 1.0


_READERS: Final[Mapping[str, Callable[[Any, Flaws], Any]]] = MappingProxyType(
    {
        "method": _method,
        "path": _path,
        "host": _host,
        "headers": _headers,
        "ip": _ip,
        "attributes": _attributes,
        "cost": _cost,
        "peek": _peek,
        "ttl": _ttl,
    }
)

_EXPECTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "method": f"a method such as POST, at most {LONGEST_METHOD} characters",
        "path": f"a path that begins with /, at most {LONGEST_PATH} characters",
        "host": "a text such as api.example.com",
        "headers": "an object of names and texts, or a list of pairs",
        "ip": "an address such as 203.0.113.7 or 2001:db8::1",
        "attributes": "an object of names and texts",
        "cost": f"{_INTEGER}, or an object of such by the ids of rules",
        "peek": "true or false",
        "ttl": "seconds, at least 0.001",
    }
)
"""The expected value of each field, for error messages."""
