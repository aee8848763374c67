"""JSON as it is taken here: one object, no name twice, no NaN, nothing too deep."""

from __future__ import annotations

import json
from json.scanner import make_scanner
from typing import Any, Final, NoReturn

from headgate.service.http.replies import RefusedError, problem

Document = dict[str, Any]


class _FlawError(ValueError):
    """Something that Python's JSON lets pass."""


def document_of(body: bytes) -> Document:
    """The object that *body* is. Raises `RefusedError` if it is none."""
    try:
        found = _found_in(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _bad(f"it is not UTF-8 (byte {error.start})") from None
    except _FlawError as error:
        raise _bad(str(error)) from None
    except json.JSONDecodeError as error:
        raise _bad(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise _bad("it is nested too deeply") from None
    except ValueError:  # of Python's int(), which takes no more than some thousand digits
        raise _bad("it has a number with too many digits") from None
    if type(found) is not dict:
        raise _bad(f"found {described(found)}, expected an object")
    return found


def described(value: object) -> str:
    """What *value* is, for an error: short, and never a whole document."""
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case str():
            shown = value if len(value) <= 40 else value[:37] + "..."
            return f"the text {shown!r}"
        case int() if value is not True and value is not False and value.bit_length() > 128:
            return "a number far too large"
    return json.dumps(value)


def _found_in(text: str) -> object:
    try:
        found, end = _SCAN(text, 0) if text[:1] == "{" else (None, 0)
    except StopIteration:  # no value where there has to be one; said in words below
        end = 0
    # If there are blanks around it, or something else, or nothing:
    return found if end and end == len(text) else _DECODER.decode(text)


def _bad(why: str) -> RefusedError:
    return RefusedError(problem(400, f"the body is not JSON as expected: {why}"))


def _object(pairs: list[tuple[str, Any]]) -> Document:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _FlawError(f"{name[:40]!r} is there twice")
            seen.add(name)
    return found


def _constant(name: str) -> NoReturn:
    raise _FlawError(f"{name} is no number in JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
_SCAN: Final = make_scanner(_DECODER)  # type: ignore[arg-type]  # typeshed wants a scanner
