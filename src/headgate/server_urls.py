"""Hosts, credentials and options in URLs of servers. No message contains a password."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headgate.errors import HeadgateError

    Options = Mapping[str, tuple[Callable[[str], Any], str]]

_AUTHORITY: Final = re.compile(r"([^/?#]*)(.*)", re.DOTALL)
_HOST: Final = re.compile(r"[^\s/?#@\[\]:,%]+")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Address(NamedTuple):
    """Where a server listens: a host and a port, or the path of a Unix socket and port 0."""

    host: str
    port: int

    def __str__(self) -> str:
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class URLReader:
    """Reads the parts of a URL of *scheme*; an invalid one raises *error*."""

    scheme: str
    error: type[HeadgateError]

    def split(self, text: str) -> tuple[str, str, list[tuple[str, str]]]:
        """Split the text after `://` into the authority, the path, and the pairs of the query."""
        found = _AUTHORITY.fullmatch(text)
        authority, rest = found.groups() if found else ("", "")
        self._refuse_stray_characters(authority, rest)
        path, _, query = rest.partition("?")
        return authority, path, self._pairs(query)

    def decoded(self, text: str, what: str) -> str:
        """*text* without its percent-encoding; *what* it is, for the message."""
        try:
            if not _BAD_ESCAPE.search(text):
                return unquote(text, errors="strict")
        except UnicodeDecodeError:
            pass
        raise self.wrong(f"{what} is not percent-encoded UTF-8; write a '%' in it as %25")

    def userinfo(self, authority: str) -> str | None:
        """The part of *authority* before the `@`; None if there is no `@`."""
        userinfo, at, _ = authority.rpartition("@")
        if "@" in userinfo:
            raise self.wrong("there are two '@'; write the one in the password as %40")
        return userinfo if at else None

    def options(self, pairs: Sequence[tuple[str, str]], known: Options) -> dict[str, Any]:
        """The values of the options in *pairs*.

        *known* has, for each name, a function from the text to the value, or to None if the text is
        wrong, and a description of the texts that are right.
        """
        values: dict[str, Any] = {}
        for name, text in pairs:
            if name not in known:
                raise self.wrong(f"unknown option {name!r}; known: {', '.join(sorted(known))}")
            if name in values:
                raise self.wrong(f"the option {name} is given twice")
            read, expected = known[name]
            values[name] = read(text)
            if values[name] is None:
                raise self.wrong(f"{name} is {text!r}; expected {expected}")
        return values

    def addresses(self, hosts: str, usual_port: int) -> tuple[Address, ...]:
        """The hosts between commas, each with a port or on the usual one."""
        addresses = tuple(self._address(text, usual_port) for text in hosts.split(","))
        if len(set(addresses)) < len(addresses):
            raise self.wrong("a host is named twice")
        return addresses

    def wrong(self, message: str) -> HeadgateError:
        """The error that says so."""
        return self.error(f"{self.scheme}://: {message}")

    def _refuse_stray_characters(self, authority: str, rest: str) -> None:
        if "@" in rest:
            # Nothing of it may be shown: it is likely the end of a password.
            raise self.wrong(
                "there is an '@' after a '/', '?' or '#'; in a password write these as "
                "%2F, %3F and %23, and an '@' anywhere else as %40"
            )
        if "#" in rest:
            raise self.wrong("a '#' has no meaning here; in a password write it %23")
        if any(not character.isprintable() for character in authority + rest):
            raise self.wrong("it contains a character that cannot be printed")

    def _pairs(self, query: str) -> list[tuple[str, str]]:
        try:
            return parse_qsl(
                query, keep_blank_values=True, strict_parsing=bool(query), errors="strict"
            )
        except ValueError:
            message = "expected name=value&name=value, percent-encoded, after the '?'"
            raise self.wrong(message) from None

    def _address(self, text: str, usual_port: int) -> Address:
        host, port = self._split_port(text, usual_port)
        if port is None:
            return Address(host, usual_port)
        if not _PORT.fullmatch(port) or int(port) > 65535:
            # Not shown: in redis://user:password the @host was forgotten.
            raise self.wrong(
                "what follows a host and ':' is no port from 1 to 65535; expected "
                "host:port, or user:password@host:port"
            )
        return Address(host, int(port))

    def _split_port(self, text: str, usual_port: int) -> tuple[str, str | None]:
        if text.startswith("["):
            inside, bracket, after = text[1:].partition("]")
            try:
                host = str(IPv6Address(self.decoded(inside, "the host")))
            except ValueError:
                bracket = ""
            if not bracket or (after and not after.startswith(":")):
                raise self.wrong(f"expected an IPv6 address as [::1] or [::1]:{usual_port}")
            return host, after[1:] if after else None
        host, colon, port = text.partition(":")
        if not _HOST.fullmatch(host):
            raise self.wrong(
                "a host is missing or no host's name; expected host:port, and commas "
                "between several"
            )
        return host, port if colon else None
