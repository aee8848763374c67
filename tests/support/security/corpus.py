"""Hostile requests as data: the YAML files in tests/security/corpus.

A file is a group of requests against one rule. Each entry is one way to spell a request; a value
that it lacks is that of `plain`, the request that uses up the limit first.

method, target, version   of the request line
host                      the Host line, a list of several, or null for none
headers                   further lines, as they are
body                      sent with its length, unless the headers frame it
raw                       the whole request instead of all this, on a connection of its own
from                      the address of the client's socket
client                    who the client is, if that is not the address of its socket
at                        who the client is at certain targets, by their names
own                       true: it is another caller than the plain one, and must not be denied

In all texts `<n>` is the number of the attempt, `<mark>` what the app names the request by, and
`<a*500>` five hundred times the letter. In a raw request `<head>` is the first two lines of any
head, `<plain>` the whole plain request, `<length>` and `<size>` (`<SIZE>`) its length, in decimal
and in hexadecimal digits, and `<lines>` a hundred lines of a head. Characters up to U+00FF are
single bytes, others UTF-8.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER: Final = Path(__file__).parents[2] / "security" / "corpus"
NETWORK: Final = "127.0.1"
"""Where the clients of each group have an address of their own: one that no server trusts."""

MARK: Final = "x-entry"
_FIELDS: Final = {
    *("name", "method", "target", "version", "host", "headers", "body", "raw"),
    *("from", "client", "at", "own"),
}
_WORDS: Final = ("n", "mark", "head", "plain", "length", "size", "SIZE", "lines")
_PLACEHOLDER: Final = re.compile(rf"<(?:({'|'.join(_WORDS)})|(.)\*(\d+))>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Entry:
    """One way to spell a request."""

    name: str
    parts: Mapping[str, Any] = field(repr=False)

    @property
    def is_raw(self) -> bool:
        return "raw" in self.parts

    @property
    def source(self) -> str:
        """The address of the client's socket."""
        return str(self.parts["from"])

    def client(self, target: str) -> str:
        """The address that is the client's by right, as *target* has to see it."""
        at = self.parts.get("at", {})
        return str(at.get(target, self.parts.get("client", self.source)))

    @property
    def is_own(self) -> bool:
        """True if it is another caller than the plain one."""
        return bool(self.parts.get("own", False))

    def request(self, number: int, mark: str) -> bytes:
        """The bytes of the attempt *number*."""

        words = {"n": str(number), "mark": mark}

        def meant(found: re.Match[str]) -> str:
            return words[found[1]] if found[1] else found[2] * int(found[3])

        def filled(text: str) -> bytes:
            return _octets(_PLACEHOLDER.sub(meant, text))

        parts = self.parts
        if self.is_raw:
            words |= self._around(number, mark)
            return filled(parts["raw"])
        hosts = parts["host"] if isinstance(parts["host"], list) else [parts["host"]]
        lines = [f"{parts['method']} {parts['target']} {parts['version']}"]
        lines += [f"Host: {host}" for host in hosts if host is not None]
        lines += [f"{MARK}: {mark}", *parts["headers"]]
        body = filled(parts.get("body", ""))
        if body and not any(_frames(line) for line in lines):
            lines.append(f"Content-Length: {len(body)}")
        return b"\r\n".join(map(filled, lines)) + b"\r\n\r\n" + body

    def _around(self, number: int, mark: str) -> dict[str, str]:
        """The words of raw requests that stand for others."""
        plain = Entry("plain", self.parts["plain"]).request(number, mark)
        return {
            "head": f"Host: {self.parts['host']}\r\n{MARK}: {mark}\r\n",
            "plain": plain.decode("latin-1"),
            "length": str(len(plain)),
            "size": f"{len(plain):x}",
            "SIZE": f"{len(plain):X}",
            "lines": "".join(f"X-{line}: a\r\n" for line in range(100)),
        }


@dataclass(frozen=True, slots=True)
class Group:
    """Requests against the counter of one rule."""

    name: str
    plain: Entry
    entries: tuple[Entry, ...]


def groups() -> dict[str, Group]:
    """All groups, by the names of their files."""
    paths = sorted(FOLDER.glob("*.yaml"))
    return {path.stem: _group(path, f"{NETWORK}.{n}") for n, path in enumerate(paths, 1)}


def _group(path: Path, client: str) -> Group:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    basic = {
        "method": "GET",
        "version": "HTTP/1.1",
        "host": "app.example",
        "headers": [],
        "from": client,
        **data["plain"],
    }
    entries = []
    for one in data["entries"]:
        unknown = one.keys() - _FIELDS
        if unknown:
            raise ValueError(f"{path.name}: {one['name']!r} has unknown fields {sorted(unknown)}")
        entries.append(Entry(one["name"], {**basic, "plain": basic, **one}))
    return Group(path.stem, Entry("plain", basic), tuple(entries))


def _frames(line: str) -> bool:
    return line.lower().startswith(("content-length", "transfer-encoding"))


def _octets(text: str) -> bytes:
    return b"".join(
        char.encode("latin-1") if char <= "\xff" else char.encode("utf-8", "surrogatepass")
        for char in text
    )
