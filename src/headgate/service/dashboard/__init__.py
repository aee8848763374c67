"""The files of the dashboard, with their types, cache rules and permissions.

The page may run its own scripts and call this service, nothing else: no other host, no inline
script or style, no frame around it. It displays keys and names that clients choose, so browsers
with Trusted Types create no markup from text.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final, NamedTuple

__all__ = ["HEADERS", "NAMES", "PAGE", "PREFIX", "File", "file_named"]


PREFIX: Final = b"/dashboard/"
PAGE: Final = "page.html"
_TYPES: Final = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
_FILES: Final = files("headgate.service.dashboard")
NAMES: Final = sorted(
    one.name for one in _FILES.iterdir() if one.name.endswith((".css", ".js", ".svg"))
)
"""The files below `PREFIX`."""

_POLICY: Final = (
    b"default-src 'none'; connect-src 'self'; script-src 'self'; style-src 'self'; "
    b"img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final = (
    # Cached, but revalidated each time: after an update, page and scripts have one version.
    (b"cache-control", b"no-cache"),
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
"""The headers of every file."""


class File(NamedTuple):
    """A file, its type and its tag."""

    body: bytes
    type: bytes
    tag: bytes


@cache
def file_named(name: str) -> File:
    """The file *name*: the page, or one of `NAMES`."""
    body = _FILES.joinpath(name).read_bytes()
    digest = sha256(body).hexdigest()[:32]
    return File(body, _TYPES[name.rpartition(".")[2]], b'"%b"' % digest.encode())
