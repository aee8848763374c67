"""All that a rule asks for besides the path, in one form, and what a request has to say to it.

A condition names a subject (the method, the host, one header, ...) and the values that will do. The
facts of a request are the values it has for each subject. A condition holds when the two meet. That
something is there at all is the value None; that a host is below another is the value
`*.example.com`; that a method is answered as another is a second method: so meeting is all there
is, and conditions can be looked up instead of tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.rules.matching.cookie import cookies_of
from headgate.rules.matching.host import normalised_host, wildcards
from headgate.rules.matching.method import methods_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headgate.rules.model import Match, Values
    from headgate.rules.request import Request

METHOD: Final = "method"
HOST: Final = "host"
TIER: Final = "tier"

Value = str | None
Facts = dict[str, tuple[Value, ...]]


@dataclass(frozen=True, slots=True)
class Condition:
    """*subject* must have one of *values*."""

    subject: str
    values: frozenset[Value]

    def holds(self, facts: Facts) -> bool:
        return not self.values.isdisjoint(facts.get(self.subject, ()))


def conditions_of(match: Match) -> tuple[Condition, ...]:
    """What *match* asks for besides the endpoint."""
    found = []
    if match.methods:
        found.append(Condition(METHOD, frozenset(map(str.upper, match.methods))))
    if match.hosts:
        found.append(Condition(HOST, frozenset(map(_host_value, match.hosts))))
    if match.tiers:
        found.append(Condition(TIER, frozenset(match.tiers)))
    found += [_named(_header(name), values) for name, values in match.headers]
    found += [_named(_cookie(name), values) for name, values in match.cookies]
    found += [_named(_attribute(name), values) for name, values in match.attributes]
    return tuple(found)


class Enquiry:
    """What to find out about requests: only what some rule asks for."""

    def __init__(self, matches: Iterable[Match]) -> None:
        matches = list(matches)
        self._method = any(match.methods for match in matches)
        self._host = any(match.hosts for match in matches)
        self._deepest = max((_depth(host) for match in matches for host in match.hosts), default=0)
        self._tier = any(match.tiers for match in matches)
        self._headers = {name.lower(): _header(name) for m in matches for name, _ in m.headers}
        self._cookies = {name: _cookie(name) for m in matches for name, _ in m.cookies}
        self._attributes = {name: _attribute(name) for m in matches for name, _ in m.attributes}

    def facts(self, request: Request, found: Mapping[str, str | None]) -> Facts:
        """The facts of *request*; *found* is what identity found of the caller, by name."""
        facts: Facts = {}
        if self._method:
            facts[METHOD] = methods_of(request)
        if self._host:
            self._add_host(facts, request)
        if self._tier:
            facts[TIER] = (found.get("tier"),)
        if self._headers:
            self._add_headers(facts, request)
        if self._cookies:
            self._add_cookies(facts, request)
        if self._attributes:
            self._add_attributes(facts, request)
        return facts

    def _add_host(self, facts: Facts, request: Request) -> None:
        host = normalised_host(request.host)
        if not host:
            return
        below = wildcards(host, self._deepest) if self._deepest else ()
        facts[HOST] = (None, host, *below)

    def _add_headers(self, facts: Facts, request: Request) -> None:
        for name, value in request.headers:
            subject = self._headers.get(name.lower())
            if subject is not None:
                facts[subject] = (*facts.get(subject, (None,)), value.strip())

    def _add_cookies(self, facts: Facts, request: Request) -> None:
        cookies = cookies_of(request)
        for name in _both(self._cookies, cookies):
            facts[self._cookies[name]] = (None, *cookies[name])

    def _add_attributes(self, facts: Facts, request: Request) -> None:
        for name in _both(self._attributes, request.attributes):
            facts[self._attributes[name]] = (None, request.attributes[name])


def _both(one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    """The names in both, at the cost of the smaller of the two."""
    fewer, more = (one, other) if len(one) < len(other) else (other, one)
    return [name for name in fewer if name in more]


def _named(subject: str, values: Values) -> Condition:
    return Condition(subject, frozenset((None,) if values is None else values))


def _header(name: str) -> str:
    return f"header {name.lower()}"


def _cookie(name: str) -> str:
    return f"cookie {name}"


def _attribute(name: str) -> str:
    return f"attribute {name}"


def _host_value(host: str) -> Value:
    """The value that stands for *host* as a rule has it; `*` alone is any host."""
    if host == "*":
        return None
    if host.startswith("*."):
        return f"*.{normalised_host(host[2:])}"
    return normalised_host(host)


def _depth(host: str) -> int:
    """How many labels follow `*.` in *host*; 0 if it is no such name."""
    return host.rstrip(".").count(".") if host.startswith("*.") else 0
