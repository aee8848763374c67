"""Conditions of rules besides the path, the facts of a request that they test, and its cost.

A condition names a subject (the method, the host, one header, ...) and the accepted values. The
facts of a request are the values it has for each subject. A condition holds if the two sets
intersect. Presence is the value None, a subdomain has the value `*.example.com`, and HEAD has the
value GET too: so intersection is the only test, and conditions can be indexed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from headgate.llm.attributes import MODEL as MODEL_ATTRIBUTE
from headgate.llm.attributes import ModelPatterns
from headgate.policy.path import compiled, readings, segments_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from headgate.engine.request import Request
    from headgate.policy.model import After, Cost, Match, Values
    from headgate.policy.path import Segments


# The cookies of a request, in all the ways in which servers read them.
#
# Servers disagree about cookies, and a caller may send what they disagree about:
#
# - Of two cookies with one name Starlette and Django take the last, Flask and Go the first. ASP.NET
#   takes names in any case for one; PHP and old versions of Rack decode them, or see `_` in a dot.
# - `"a\054b"` is `a,b` for some, `%41` is `A` and `+` a blank for others.
# - A blank or a comma ends a cookie for `http.cookies` or for old Java servers, a NUL for C, an
#   unmatched quote for old versions of Express.
#
# `cookie_readings` is for keys, where the parser of the app is not known. Spellings that some
# server takes for one value are one value. Where servers take one of several values, all of them
# are readings, so that the counter of the one that counts is among them. `cookies_of` is for
# matching: a rule is for a request if it is for any value.


BLANKS: Final = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\0\ufeff\udc85\udca0"
"""What some program takes for a blank: lone bytes of Latin-1, as gRPC has them, included."""

_CONTROLS: Final = "\x01-\x1f\x7f"
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_-]*")
_IS_LOOSE: Final = re.compile(rf'[,"\t-\r{_CONTROLS}{BLANKS.replace(" ", "")}]|(?<!;) ')
"""A line in which some server sees other pairs than those between semicolons."""

_LOOSE_PAIR: Final = re.compile(
    rf'(?:^|(?<=[;,"{_CONTROLS}{BLANKS}]))([^=;,"{_CONTROLS}{BLANKS}]++)[{BLANKS}]*+='
    rf'(?=[{BLANKS}"]*+([^;,"{_CONTROLS}{BLANKS}]*+))'
)
"""A pair that some server sees: after a blank, a comma or a quote, and up to the next."""

_VALUE: Final = re.compile(r"[!#-+\--~]*")
"""A value that RFC 6265 allows, or one with backslashes: no blanks, quotes, commas, controls, and
nothing beyond ASCII."""

_START: Final = re.compile(rf'[^;,"{_CONTROLS}{BLANKS}]+')
_QUOTED: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\[ -~])*)"')
_ESCAPED: Final = re.compile(r"\\(?:([0-3][0-7][0-7])|(.))", re.DOTALL)
_ENCODED: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_OCTETS: Final = re.compile("[\x80-\xff\udc80-\udcff]+")
"""Bytes beyond ASCII: servers have them as Latin-1; gRPC alone has those that are UTF-8 decoded."""

_MOST_PASSES: Final = 6
"""Servers decode a value fewer times."""

Pairs = list[tuple[str, str]]


def cookie_readings(request: Request, name: str) -> tuple[str | None, ...]:
    """The values that servers may read as the cookie *name*, each in the one spelling that stands
    for all its spellings; None if it is missing or empty for some.

    That is the first or the last cookie of that name, or of one that some server takes for it; as
    far as the next semicolon, or as a blank, comma or quote.
    """
    wanted = _spelt_name(name)
    strict, loose = _pairs(request)
    ends: dict[str, None] = {}
    for pairs in (strict, loose) if loose else (strict,):
        alike = [one for one in pairs if one[0] == name or _spelt_name(one[0]) == wanted]
        exact = [one for one in alike if one[0] == name]
        for values in (exact, alike):
            ends |= dict.fromkeys((values[0][1], values[-1][1]) if values else ("",))
    return tuple(dict.fromkeys(value for text in ends for value in _spelt_values(text)))


def cookies_of(request: Request, names: Collection[str]) -> dict[str, set[str | None]]:
    """All values of the cookies with *names* (as `_spelt_name` has them) in all Cookie lines, as
    they are and decoded, by name.

    Blanks around both and one pair of quotes around a value do not count. What has no `=` is passed
    over; nothing spoils the rest.
    """
    found: dict[str, set[str | None]] = {}
    for pairs in _pairs(request):
        for label, text in pairs:
            name = _spelt_name(label)
            if name in names:
                found.setdefault(name, set()).update((_unquoted(text), *_spelt_values(text)))
    return found


def _pairs(request: Request) -> tuple[Pairs, Pairs]:
    """The names and values between semicolons, without blanks around them; and those that other
    servers see, if there may be others."""
    strict: Pairs = []
    loose: Pairs = []
    lines = request.header_lines("cookie")
    for line in lines:
        for part in line.split(";"):
            name, equals, value = part.strip(BLANKS).partition("=")
            if equals:
                strict.append((name.rstrip(BLANKS), value.lstrip(BLANKS)))
    if any(map(_IS_LOOSE.search, lines)):
        loose = [pair for line in lines for pair in _LOOSE_PAIR.findall(line)]
    return strict, loose


def _spelt_name(name: str) -> str:
    """One spelling for all names that some server takes for *name*."""
    if _PLAIN_NAME.fullmatch(name) is None:
        name = unquote(name, encoding="latin-1").strip(BLANKS)
        name = name.replace(".", "_").replace(" ", "_").replace("+", "_")
    return name.lower()


def _spelt_values(text: str) -> Iterator[str | None]:
    """One spelling for all values that some server takes for *text*; two if a server may end it
    early; None for an empty one."""
    if _PLAIN_NAME.fullmatch(text) is not None:
        yield text or None
        return
    is_plain = _VALUE.fullmatch(text) is not None
    if not is_plain and (quoted := _QUOTED.fullmatch(text)) is not None:
        text = quoted[1].strip(BLANKS)
    if not text.isascii():
        text = _OCTETS.sub(_raw, text)
    for _ in range(_MOST_PASSES):
        decoded = _ESCAPED.sub(_unescaped, _ENCODED.sub(_decoded, text))
        if decoded == text:
            break
        text = decoded
    text = text.replace("+", " ")
    yield text or None
    if not is_plain:
        start = _START.search(text)
        yield None if start is None else start[0]


def _raw(octets: re.Match[str]) -> str:
    return _characters(bytes([ord(one) & 0xFF for one in octets[0]]))


def _decoded(encoded: re.Match[str]) -> str:
    return _characters(bytes.fromhex(encoded[0].replace("%", "")))


def _characters(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets.decode("latin-1")


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 8)) if escape[1] else escape[2]


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] == '"':
        return value[1:-1]
    return value


# The header of a caller, in all the ways in which servers read several lines of it: the first, the
# last, or all of them joined by commas, as CGI and Envoy's external authorization have them.


_HEADER_BLANKS: Final = " \t"
_JOINED: Final = re.compile(r",(?![ \t])")
"""A comma that may join lines: one that a client writes is usually followed by a blank."""

_COMMA: Final = re.compile(r"[ \t]*,[ \t]*")


def header_readings(request: Request, name: str) -> tuple[str | None, ...]:
    """The values that servers may read as the header *name* (in lower case); None if it is missing
    or empty for some."""
    lines = [line.strip(_HEADER_BLANKS) for line in request.header_lines(name)]
    if not lines:
        return (None,)
    whole = ",".join(lines)
    if "," not in whole:
        return (whole or None,)
    parts = _JOINED.split(whole)
    readings = (
        _COMMA.sub(",", one.strip(_HEADER_BLANKS)) or None for one in (parts[0], parts[-1], whole)
    )
    return tuple(dict.fromkeys(readings))


# The methods that a request counts as.


GET: Final = "GET"
HEAD: Final = "HEAD"

_HEAD_AND_GET: Final = (HEAD, GET)


def methods_of(request: Request) -> tuple[str, ...]:
    """The methods whose rules are for *request*, in upper case: its own first, and last the one
    that it is handled as.

    They differ for HEAD alone: servers answer it with the handler of GET, at the price of GET, so
    a HEAD request must not escape the limits of GET.
    """
    method = request.method.upper()
    return _HEAD_AND_GET if method == HEAD else (method,)


# One spelling for all spellings of a host, and the wildcards it falls under.
#
# Of `shop.example:x@other.example/y` apps that cut it at the first colon read `shop.example`, those
# that read a URL with it `other.example`. Both are readings.


_USUAL = re.compile(r"([a-z0-9._-]*)(?::[0-9]*)?")
_AFTER = re.compile(r"[/?#\\]")
"""What ends the host in a URL."""

_LONGEST_NAME = 253


def host_readings(raw: str) -> tuple[str, ...]:
    """The hosts that apps may read in *raw*, each in one spelling: in lower case, without a port, a
    user and a dot at the end.

    An IPv6 address is in its short form without brackets and zone; letters beyond ASCII are as the
    DNS has them (`xn--`). Never raises.
    """
    host = raw.strip().lower()
    usual = _USUAL.fullmatch(host)
    if usual is not None:
        return (usual[1].rstrip("."),)
    in_url = _AFTER.split(host, maxsplit=1)[0].replace("\t", "").rpartition("@")[2]
    cut = host if host.startswith("[") or _short_address(host) else host.partition(":")[0]
    readings = cut.rpartition("@")[2], in_url
    return tuple(dict.fromkeys(_in_ascii(_without_port(one)).rstrip(".") for one in readings))


def normalised_host(raw: str) -> str:
    """*raw* as apps read it that cut it at the first colon."""
    return host_readings(raw)[0]


def wildcards(host: str, deepest: int) -> list[str]:
    """The `*.` names with up to *deepest* labels that the normalised *host* falls under."""
    labels = host.rsplit(".", deepest) if deepest else ()
    return ["*." + ".".join(labels[first:]) for first in range(1, len(labels))]


def _without_port(host: str) -> str:
    if host.startswith("["):
        inner = host[1:].partition("]")[0]
        return _short_address(inner) or inner
    return _short_address(host) or host.partition(":")[0]


def _short_address(text: str) -> str:
    """The IPv6 address *text* in its short form; "" if it is none."""
    try:
        return IPv6Address(text.partition("%")[0]).compressed
    except ValueError:
        return ""


def _in_ascii(host: str) -> str:
    if host.isascii() or len(host) > _LONGEST_NAME:
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        return host


METHOD: Final = "method"
HOST: Final = "host"
TIER: Final = "tier"
MODEL: Final = "model"

_WITHOUT_BODY: Final = frozenset(("GET", "HEAD", "OPTIONS", "DELETE"))

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
    """The conditions of *match* besides the endpoint."""
    found = []
    if match.methods:
        found.append(Condition(METHOD, frozenset(map(str.upper, match.methods))))
    if match.hosts:
        found.append(Condition(HOST, frozenset(map(_host_value, match.hosts))))
    if match.tiers:
        found.append(Condition(TIER, frozenset(match.tiers)))
    if match.models:
        found.append(Condition(MODEL, frozenset(match.models)))
    found += [_named(_header(name), values) for name, values in match.headers]
    found += [_named(_cookie(name), values) for name, values in match.cookies]
    found += [_named(_attribute(name), values) for name, values in match.attributes]
    return tuple(found)


class FactReader:
    """Reads the parts of requests that some rule has a condition on."""

    def __init__(self, matches: Iterable[Match]) -> None:
        matches = list(matches)
        self._method = any(match.methods for match in matches)
        self._host = any(match.hosts for match in matches)
        self._deepest = max((_depth(host) for match in matches for host in match.hosts), default=0)
        self._tier = any(match.tiers for match in matches)
        self._models = ModelPatterns(name for match in matches for name in match.models)
        self._headers = {name.lower(): _header(name) for m in matches for name, _ in m.headers}
        self._cookies = {_spelt_name(name): _cookie(name) for m in matches for name, _ in m.cookies}
        self._attributes = {name: _attribute(name) for m in matches for name, _ in m.attributes}

    def facts(self, request: Request, found: Mapping[str, str | None]) -> Facts:
        """The facts of *request*; *found* has the identity of the caller, by name."""
        facts: Facts = {}
        if self._method:
            facts[METHOD] = methods_of(request)
        if self._host:
            self._add_host(facts, request)
        if self._tier:
            facts[TIER] = (found.get("tier"),)
        if self._models.names:
            self._add_model(facts, request)
        if self._headers:
            self._add_headers(facts, request)
        if self._cookies:
            self._add_cookies(facts, request)
        if self._attributes:
            self._add_attributes(facts, request)
        return facts

    def _add_host(self, facts: Facts, request: Request) -> None:
        hosts = [host for host in host_readings(request.host) if host]
        if hosts:
            below = [name for host in hosts for name in wildcards(host, self._deepest)]
            facts[HOST] = (None, *hosts, *below)

    def _add_model(self, facts: Facts, request: Request) -> None:
        model = request.attributes.get(MODEL_ATTRIBUTE)
        if model is not None:
            facts[MODEL] = (model, *self._models.matching(model))
        elif may_call_model(request):
            facts[MODEL] = self._models.names

    def _add_headers(self, facts: Facts, request: Request) -> None:
        found: dict[str, dict[Value, None]] = {}
        for name, value in request.headers:
            subject = self._headers.get(name.lower())
            if subject is not None:  # a proxy may have joined several lines by commas
                parts = value.split(",") if "," in value else ()
                values = value.strip(), *map(str.strip, parts)
                found.setdefault(subject, {None: None}).update(dict.fromkeys(values))
        facts.update({subject: tuple(values) for subject, values in found.items()})

    def _add_cookies(self, facts: Facts, request: Request) -> None:
        for name, values in cookies_of(request, self._cookies).items():
            facts[self._cookies[name]] = tuple({None, *values})

    def _add_attributes(self, facts: Facts, request: Request) -> None:
        given = request.attributes
        fewer, more = (
            (given, self._attributes)
            if len(given) < len(self._attributes)
            else (self._attributes, given)
        )
        for name in fewer:
            if name in more:
                facts[self._attributes[name]] = (None, given[name])


def may_call_model(request: Request) -> bool:
    """False if *request* has no body, and so is no call of a language model."""
    return request.method.upper() not in _WITHOUT_BODY


def _named(subject: str, values: Values) -> Condition:
    return Condition(subject, frozenset((None,) if values is None else values))


def _header(name: str) -> str:
    return f"header {name.lower()}"


def _cookie(name: str) -> str:
    return f"cookie {_spelt_name(name)}"


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
    """The number of labels after `*.` in *host*; 0 if it is no such name."""
    return host.rstrip(".").count(".") if host.startswith("*.") else 0


# What a request costs.


MAX_COST: Final = 2**53 - 1
"""The highest cost in a header: the largest amount that stores count exactly."""

_WHOLE_NUMBER = re.compile(r"[0-9]+")


def cost_of(cost: Cost, request: Request, path: str) -> int:
    """The cost of *request* with the normalised *path*: by its header, else by its endpoint, else
    the default.

    A header counts if it is there once and is a whole number; it is raised to `cost.least` and cut
    to `cost.most`. Without that bound, one beyond `MAX_COST` does not count. When a path can be
    read in several ways, the highest cost counts. A cost of GET applies to HEAD.
    """
    named = None if cost.header is None else _by_header(cost.header, cost, request)
    if named is not None:
        return named
    if not cost.endpoints:
        return cost.default
    methods = methods_of(request)
    others = readings(request.path)[1:] if path != request.path else ()
    return max(_by_endpoint(cost, methods, way) for way in (segments_of(path), *others))


def cost_after(after: After, amount: int) -> int:
    """The final cost of a request, by the *amount* in a header or by the bytes sent."""
    units = -(-amount // after.per)
    return units if after.most is None else min(units, after.most)


def cost_in_response(after: After, lines: Sequence[str]) -> int | None:
    """The final cost by the *lines* of the response's header; None without one whole number.

    A number beyond `MAX_COST` counts as `after.most`, and not at all without that bound.
    """
    amount = _whole_number(lines)
    if amount is None:
        return None
    return cost_after(after, amount) if amount <= MAX_COST else after.most


def _by_header(name: str, cost: Cost, request: Request) -> int | None:
    found = _whole_number(request.header_lines(name.lower()))
    if found is None or (cost.most is None and found > MAX_COST):
        return None
    return max(cost.least, found if cost.most is None else min(found, cost.most))


def _whole_number(lines: Sequence[str]) -> int | None:
    """The number in a header that is there once; `MAX_COST + 1` stands for anything larger."""
    if len(lines) != 1:
        return None
    text = lines[0].strip()
    if _WHOLE_NUMBER.fullmatch(text) is None:
        return None
    digits = text.lstrip("0") or "0"
    return min(int(digits), MAX_COST + 1) if len(digits) <= len(str(MAX_COST)) else MAX_COST + 1


def _by_endpoint(cost: Cost, methods: tuple[str, ...], segments: Segments) -> int:
    for endpoint in cost.endpoints:
        named = endpoint.method is None or endpoint.method.upper() in methods
        if named and compiled(endpoint.endpoint).fits(segments):
            return endpoint.cost
    return cost.default
