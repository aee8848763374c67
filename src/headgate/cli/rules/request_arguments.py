"""The request of `headgate rules explain`, from its arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headgate.engine.request import Request
from headgate.errors import OptionError
from headgate.policy.identity.address import read_address

if TYPE_CHECKING:
    from argparse import Namespace

    from headgate.policy.model import Source

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - of RFC 9110
_LINE: Final = re.compile(
    rf"(?:(?P<method>{_TOKEN})\s+)?(?P<target>(?:/|\*|[A-Za-z][A-Za-z0-9+.-]*://).*?)"
    r"(?:\s+HTTP/[0-9.]+)?",
    re.DOTALL,
)
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?P<host>[^/?#]*)(?P<path>[^?#]*)", re.DOTALL)
_NAME: Final = re.compile(_TOKEN)

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Line:
    """The request line."""

    method: str
    path: str
    host: str = ""


def read_line(text: str) -> Line:
    """Parse *text*: a method (default GET) and a path or a URL, without the query.

    Raises `OptionError`.
    """
    found = _LINE.fullmatch(text.strip())
    if found is None:
        raise OptionError(
            f"the request is {text!r}; expected 'POST /login', '/login' or "
            "'GET https://example.com/login'"
        )
    method, target = (found["method"] or "GET").upper(), found["target"]
    url = _URL.match(target)
    if url is None:
        return Line(method, target.partition("?")[0])
    return Line(method, url["path"] or "/", url["host"].rpartition("@")[2])


def request_of(arguments: Namespace) -> Request:
    """The request that *arguments* describe."""
    line = read_line(arguments.request)
    headers = [_header(text) for text in arguments.header]
    if arguments.cookie:
        headers.append(("cookie", "; ".join(map(_cookie, arguments.cookie))))
    sent = next((value for name, value in headers if name.lower() == "host"), "")
    host = arguments.host or sent or line.host
    if host and not sent:
        headers.append(("host", host))
    return Request(
        method=line.method,
        path=line.path,
        host=host,
        headers=tuple(headers),
        peer=_peer(arguments.ip),
        attributes=dict(map(_attribute, arguments.attribute)),
    )


def with_tier(request: Request, tier: str, source: Source) -> Request:
    """*request* by a caller of *tier*, said where *source* looks for it."""
    if source.header is not None:
        others = [line for line in request.headers if line[0].lower() != source.header]
        return replace(request, headers=(*others, (source.header, tier)))
    if source.attribute is not None:
        return replace(request, attributes={**request.attributes, source.attribute: tier})
    if source.cookie is not None:
        return replace(request, headers=(("cookie", f"{source.cookie}={tier}"), *request.headers))
    raise OptionError(
        f"--tier cannot be said here: this policy looks the tier up by {source.lookup}; "
        "give that instead"
    )


def _header(text: str) -> Pair:
    name, colon, value = text.partition(":")
    if not colon or not _NAME.fullmatch(name.strip()):
        raise OptionError("a header is written -H 'name: value'")
    return name.strip(), value.strip()


def _cookie(text: str) -> str:
    name, equals, value = text.partition("=")
    if not equals or not _NAME.fullmatch(name) or ";" in value:
        raise OptionError("a cookie is written --cookie name=value, one at a time")
    return text


def _attribute(text: str) -> Pair:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise OptionError("an attribute is written --attribute name=value")
    return name, value


def _peer(text: str) -> str:
    if read_address(text) is None:
        raise OptionError(f"--ip is {text!r}; expected an address such as 1.2.3.4 or 2001:db8::1")
    return text
