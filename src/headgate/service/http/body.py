"""Request bodies: read within limits of size and time, and parsed as strict JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NoReturn

from headgate.service.http.replies import RejectedError, problem

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from headgate.service.http.replies import HttpOptions, Receive, Scope


_JSON: Final = b"application/json"


class DisconnectedError(Exception):
    """The client has disconnected, so there is no one to answer; not an error."""


def json_body_of(scope: Scope, receive: Receive, options: HttpOptions) -> Awaitable[bytes]:
    """Read a body that must be declared as JSON; otherwise like `body_of`."""
    kind, length = _announced(scope)
    if kind != _JSON:
        _check_kind(kind)
    return _received(receive, length, options)


def body_of(scope: Scope, receive: Receive, options: HttpOptions) -> Awaitable[bytes]:
    """Read an optional body; its content type, if any, must be JSON.

    Raises `RejectedError` if it is too large, and `DisconnectedError` if the client leaves.
    """
    kind, length = _announced(scope)
    if kind is not None:
        _check_kind(kind)
    return _received(receive, length, options)


def any_body_of(scope: Scope, receive: Receive, options: HttpOptions) -> Awaitable[bytes]:
    """Read a body of any content type."""
    return _received(receive, _announced(scope)[1], options)


def _announced(scope: Scope) -> tuple[bytes | None, bytes]:
    """The declared content type (several joined by commas) and length."""
    kind, length = None, b"0"
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind = value if kind is None else b"%b, %b" % (kind, value)
        elif name == b"content-length":
            length = value
    return kind, length


def _check_kind(kind: bytes | None) -> None:
    """Raise `RejectedError` unless *kind* is JSON."""
    media_type, _, rest = (kind or b"none").partition(b";")
    charset = rest.strip().lower().replace(b'"', b"")
    if media_type.strip().lower() == _JSON and charset in (b"", b"charset=utf-8"):
        return
    found = (kind or b"none").decode("latin-1")[:80]
    detail = f"the content type is {found!r}; expected application/json in UTF-8"
    raise RejectedError(problem(415, detail, headers=((b"accept", _JSON),)))


async def _received(receive: Receive, length: bytes, options: HttpOptions) -> bytes:
    """Read the body. One with a declared *length* that is too large is not read at all.

    The server limits the time.
    """
    most = options.largest_body
    if length.isdigit() and (len(length) > 18 or int(length) > most):
        raise _too_large(most)
    body, has_more = b"", True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        body += message.get("body", b"")
        if len(body) > most:
            raise _too_large(most)
        has_more = message.get("more_body", False)
    return body


def _too_large(most: int) -> RejectedError:
    # The connection stays open: closing it while data arrives would lose the answer. The server
    # discards the rest, within the time limit of a request.
    return RejectedError(problem(413, f"the body is larger than {most} bytes"))


# Strict JSON: one object, no duplicate names, no NaN, bounded depth.


Document = dict[str, Any]


class _FlawError(ValueError):
    """An error that Python's JSON decoder does not report."""


def document_of(body: bytes) -> Document:
    """Parse *body* as an object. Raises `RejectedError` if it is not one."""
    try:
        found = _DECODER.decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise _bad(f"it is not UTF-8 (byte {error.start})") from None
    except _FlawError as error:
        raise _bad(str(error)) from None
    except json.JSONDecodeError as error:
        raise _bad(f"line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise _bad("it is nested too deeply") from None
    except ValueError:  # from int(), which limits the number of digits
        raise _bad("it has a number with too many digits") from None
    if type(found) is not dict:
        raise _bad(f"found {described(found)}, expected an object")
    return found


def described(value: object) -> str:
    """Describe *value* in an error message: short, never a whole document."""
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


def _bad(why: str) -> RejectedError:
    return RejectedError(problem(400, f"the body cannot be read as a JSON object: {why}"))


def _object(pairs: list[tuple[str, Any]]) -> Document:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise _FlawError(f"{name[:40]!r} occurs twice")
            seen.add(name)
    return found


def _constant(name: str) -> NoReturn:
    raise _FlawError(f"{name} is not a number in JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
