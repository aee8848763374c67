"""The files of the dashboard as answers: what they are, how long they keep, what they may do.

The page may run the scripts beside it and ask this service, nothing else: no other host, no script
or style within the page, no frame around it. What it shows are keys and names that strangers have
chosen; a browser that knows Trusted Types refuses to make markup of any text (`'none'` may).
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.service.http.replies import Reply, header_of

if TYPE_CHECKING:
    from headgate.service.http.replies import Headers, Scope

__all__ = ["NAMES", "PREFIX", "file_reply", "page_reply"]


PREFIX: Final = b"/dashboard/"
SCRIPTS: Final = (
    "api.js",
    "caller.js",
    "candidates.js",
    "charts.js",
    "clock.js",
    "connection.js",
    "dom.js",
    "editor.js",
    "explain.js",
    "findings.js",
    "health.js",
    "history.js",
    "keys.js",
    "main.js",
    "pace.js",
    "rules.js",
    "traffic.js",
    "words.js",
)
NAMES: Final = ("style.css", "icon.svg", *SCRIPTS)
"""What is served below `PREFIX`."""

_TYPES: Final = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
_POLICY: Final = (
    b"default-src 'none'; connect-src 'self'; script-src 'self'; style-src 'self'; "
    b"img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)
_GUARDS: Final[Headers] = [
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_AGAIN: Final = (b"cache-control", b"no-cache")
"""Kept, but asked for each time: after an update page and scripts are of one version."""


class File(NamedTuple):
    """A file, its type and its tag."""

    body: bytes
    type: bytes
    tag: bytes


def page_reply(scope: Scope, *headers: tuple[bytes, bytes]) -> Reply:
    """The page; nothing if the caller has it already."""
    return _reply(scope, _file("page.html"), headers)


def file_reply(scope: Scope, name: str) -> Reply:
    """The file *name*, one of `NAMES`; nothing if the caller has it already."""
    return _reply(scope, _file(name), ())


def _reply(scope: Scope, file: File, more: tuple[tuple[bytes, bytes], ...]) -> Reply:
    headers = [(b"etag", file.tag), _AGAIN, *more, *_GUARDS]
    if file.tag.decode() in (header_of(scope, b"if-none-match") or ""):
        return Reply(304, headers, b"")
    return Reply(200, [(b"content-type", file.type), *headers], file.body)


@cache
def _file(name: str) -> File:
    body = files("headgate.service.dashboard").joinpath(name).read_bytes()
    digest = sha256(body).hexdigest()[:32]
    return File(body, _TYPES[name.rpartition(".")[2]], b'"%b"' % digest.encode())
