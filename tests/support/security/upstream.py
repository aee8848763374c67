"""The app behind a gateway: it reads each request as several frameworks do.

A gateway does not know what its upstream runs on. So no reading of the upstream may have more
requests than the limit.
"""

from __future__ import annotations

from posixpath import normpath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from django.http import parse_cookie as django_cookies
from starlette.requests import cookie_parser
from werkzeug.http import parse_cookie as werkzeug_cookies

from tests.support.security.apps import place_of
from tests.support.security.readings import Reading, bearer, simple_cookie

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.security.readings import Journal


def upstream_app(journal: Journal) -> Any:
    """An ASGI app that records every reading of each request."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            """Read the body."""
        status = 404
        for reader, place, reading in _readings(scope):
            journal.reach(place[0], reading, place[1], reader=reader)
            status = 200
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    return app


def _readings(scope: Any) -> Iterator[tuple[str, tuple[str, str], Reading]]:
    exact = place_of(scope["path"], scope["method"])
    lenient = place_of(_lenient(scope["raw_path"].decode("latin-1")), scope["method"])
    lines = [(name.decode(), value.decode("latin-1")) for name, value in scope["headers"]]
    cookies = "; ".join(value for name, value in lines if name == "cookie")
    for reader, headers, read in (
        ("first line", dict(reversed(lines)), lambda text: dict(_first(text))),
        ("last line", dict(lines), cookie_parser),
        ("joined lines", _joined(lines), lambda text: werkzeug_cookies(text).to_dict()),
        ("decoded", _joined(lines), lambda text: _decoded(django_cookies(text))),
    ):
        try:
            found = read(cookies)
        except UnicodeDecodeError:  # Werkzeug takes cookies for UTF-8, and answers 500
            continue
        host = headers.get("host", "")
        if reader == "decoded":
            host = _in_url(host)
        for how, place in (("exact", exact), ("lenient", lenient)):
            if place is not None:
                reading = _reading(scope["method"], host, headers, found, cookies)
                yield f"{reader}, {how} path", place, reading


def _reading(
    method: str, host: str, headers: Mapping[str, str], cookies: Mapping[str, str], line: str
) -> Reading:
    def cookie(name: str) -> str | None:
        return cookies[name] if name in cookies else simple_cookie(line, name)

    return Reading(
        method,
        lambda: host,
        headers.get,
        cookie,
        lambda: bearer(headers.get("authorization")),
    )


def _first(cookies: str) -> Iterator[tuple[str, str]]:
    for pair in reversed(cookies.split(";")):
        name, _, value = pair.partition("=")
        yield name.strip(), value.strip()


def _joined(lines: list[tuple[str, str]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in lines:
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


def _decoded(cookies: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): unquote(value) for name, value in cookies.items()}


def _in_url(host: str) -> str:
    """The host of a URL with *host* in it; if there is no such URL, *host* as it is."""
    try:
        name = urlsplit(f"http://{host}/").hostname or ""
    except ValueError:
        return host
    return f"[{name}]" if ":" in name else name


def _lenient(target: str) -> str:
    """The path that a server makes of *target* that forgives everything."""
    path = target.partition("?")[0]
    if "://" in path:
        path = "/" + path.partition("://")[2].partition("/")[2]
    path = unquote(path).replace("\\", "/").lower().partition("\0")[0]
    segments = [segment.partition(";")[0].strip() for segment in path.split("/")]
    return normpath("/" + "/".join(filter(None, segments)))
