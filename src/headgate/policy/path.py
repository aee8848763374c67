r"""One spelling for all spellings of a path, so that none escapes a rule.

Servers disagree about the meaning of a path. `normalised_path` takes the most lenient view:
what some server might take for /login is /login. In this order:

- `http://host/login`, a target in absolute form: the path of it. No slash in front: one is added,
  so that the target `*` of OPTIONS is `/*`, and "" is `/`.
- `%6c`, `%6C`: decoded, once only: `%256c` is the text `%6c`, as for a server. A `%` that is not
  followed by two digits is itself. Both are written `%25` in the result, and bytes that are not
  UTF-8 `%FF`, so that different paths stay different, and the result is its own normalised form.
- A letter of ASCII in a form too long for it (`%C1%AC`): the letter. Other letters stay as they
  are, composed or not: a path is bytes.
- Control characters: dropped; a NUL ends the path, as it ends a string in C.
- `?`, `#`: end the path, encoded or not.
- `\`, `%5C`, `%2F`: slashes.
- `;x=1` up to the next slash, encoded or not: dropped, as parameters are.
- Blanks around a segment and dots after it: dropped, as by `strip` and by Windows.
- `//`, `/./`, `/a/../`, a slash at the end: resolved; `..` stops at the root.
- `/LOGIN`: in lower case, for many frameworks and file systems do not mind. ASCII only.

No view alone is safe, though: `/files/../x` is `/x` for one server and in `/files/**` for another;
`/item/a%2Fb` is one segment below `/item` for one server, and two for another. `readings` has all
the views that make a difference: a rule is for a request if it is for any reading of its path.

For keys it matters which resource a server may take a path for. `/a;x/b` is read in two ways, but
`/a/b` is the one spelling of both. `/a%23/../b` is `/b` for nginx and `/a` for others: it is
ambiguous, and `resources` has both, or a caller would have a new counter for every `a`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from posixpath import normpath
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.engine.request import Request


Segments = tuple[str, ...]
Dots = Literal["resolved", "resolved among empty segments", "kept"]
Text = Literal["lenient", "literal", "without parameters"]
Way = tuple[Text, bool, Dots]
"""How to read a path: which text, `\\` and `%2F` as slashes or not, dots resolved or not."""

MOST_SEGMENTS: Final = 256
"""Of a path with more, only so many are looked at: half of them at each end. Patterns that are
longer than that half are not for such paths; what is in the middle is only seen by `**`."""

LONGEST: Final = 8192
"""Characters of the longest path that rules examine, at a cost that grows with it. A request with a
longer one is denied with 414."""

SHORT: Final = 256
"""Characters of the longest path whose normalised form is cached: most requests are for a few."""

LONG: Final = 1024
"""A path of more characters is read as the four main kinds of servers do, not in every way."""

_PLAIN = re.compile(r"/[A-Za-z0-9_~!$&'()*+,=:@./-]*")
_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\\?#]*")
_ENCODED = re.compile(rb"(?:%[0-9A-Fa-f]{2})+")
_SLASH = "\udc2f"
"""An encoded slash among decoded text; no text decodes to it."""

_CONTROLS = bytes([*range(1, 32), 127])
_OVERLONG = re.compile(rb"\xc0[\x80\xa0-\xbf]|\xc1[\x80-\xbe]")
_UNSEEN = _CONTROLS + b"\xc0\xc1"
_ENDS = "\0?#"
_BLANKS = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\ufeff\udc85\udca0"
_BLANKS_AND_DOTS = _BLANKS + "."
_UNSPELT = re.compile("[%\udc00-\udcff]")
_OCTETS = re.compile("[\udc80-\udcff]+")

_DOTTED = re.compile(rf"(?:^|[/\\{_SLASH}])[{_BLANKS}]*\.")
_SHIFTY = re.compile(rf"{_DOTTED.pattern}|[\\{_SLASH}]")
"""Parts that may be another resource for another server: dots, and possible slashes."""

_PARAMETERS = re.compile(";[^/]*")
_BLANK_NAME = re.compile(rf"/[{_BLANKS}]+;")

_NOISY = re.compile(rf"[\0?#;{_BLANKS}]|\.(?:$|[/\\{_SLASH}])")
_ALL_DOTS: tuple[Dots, ...] = ("resolved", "resolved among empty segments", "kept")
_MAIN_WAYS: tuple[Way, ...] = (
    ("lenient", True, "resolved"),  # all that forgives
    ("literal", True, "resolved"),  # nginx
    ("literal", True, "kept"),  # WSGI and ASGI
    ("literal", False, "kept"),  # Express, and all that routes before it decodes
)
_TEXTS: tuple[Text, ...] = ("lenient", "literal")
_MAIN_RESOURCES: tuple[Way, ...] = (
    *((text, separators, _ALL_DOTS[0]) for text in _TEXTS for separators in (True, False)),
    *((text, True, _ALL_DOTS[1]) for text in _TEXTS),
)
_TOMCAT: Way = ("without parameters", True, "resolved")
"""Of servers that drop `;x`, but do not end a path at an encoded `#` or `?`."""


def normalised_path(raw: str) -> str:
    """The one spelling of the path *raw*: a slash, then segments in lower case, decoded, with no
    slash at the end. Never raises; what is normalised stays as it is."""
    return _cached(raw) if len(raw) <= SHORT else _normalised(raw)


def _normalised(raw: str) -> str:
    plain = _plain(raw)
    if plain is not None:
        return plain
    lenient, _ = _texts(raw)
    return _leniently(_separated(lenient))


def _leniently(separated: str) -> str:
    return "/" + _spelt(_read(separated, mild=True, dots="resolved"))


_cached = lru_cache(maxsize=4096)(_normalised)


def readings(raw: str) -> tuple[Segments, ...]:
    """The segments of the path *raw*, in every way that servers read it, each way once.

    The first is that of `normalised_path`; for an ordinary path there is no other.
    """
    plain = _plain(raw)
    if plain is not None:
        return (segments_of(plain),)
    lenient, literal = _texts(raw)
    read = _read_in(_ways(lenient, literal), lenient, literal)
    ways = dict.fromkeys(map(_segments, dict.fromkeys(map(_looked_at, read))))
    if _DOTTED.search(lenient) is not None and _hides_segments(lenient):
        # Of two servers in a row the second one reads what the first has made of it.
        ways |= dict.fromkeys([segments_of(path) for path, _ in _resources(lenient, literal)])
    return tuple(ways)


def resources(raw: str) -> tuple[tuple[str, Segments], ...]:
    """The normalised paths that servers may take the path *raw* for, each with segments as they are
    read: all readings that may differ in it. One path, and no segments, for an ordinary path."""
    plain = _plain(raw)
    if plain is not None:
        return ((plain, ()),)
    lenient, literal = _texts(raw)
    if _SHIFTY.search(lenient) is None:
        return ((normalised_path(raw), ()),)
    return _resources(lenient, literal)


def _resources(lenient: str, literal: str) -> tuple[tuple[str, Segments], ...]:
    ways = _ways(lenient, literal, _MAIN_RESOURCES)
    found: dict[tuple[str, Segments], None] = {}
    for read in _read_in(ways, lenient, literal):
        if lenient == literal:  # it needs no decoding, and has nothing that is dropped
            path = _leniently(_separated(read))
        else:
            path = _normalised("/" + _spelt(read))
        found[path, _segments(_looked_at(read))] = None
    return tuple(found)


def segments_of(path: str) -> Segments:
    """The segments of a normalised path, no more than `MOST_SEGMENTS`."""
    return tuple(_looked_at(path[1:]).split("/")) if path != "/" else ()


def _plain(raw: str) -> str | None:
    """The normalised path if there is only case and a slash at the end to it: a short cut for most
    paths."""
    if _PLAIN.fullmatch(raw) is None or "//" in raw or "./" in raw:
        return None
    if raw[-1] == "/":
        return raw[:-1].lower() or "/"
    return raw.lower() if raw[-1] != "." else None


def _ways(lenient: str, literal: str, main: tuple[Way, ...] = _MAIN_WAYS) -> Iterable[Way]:
    """The ways to read a text that differ at all; the *main* ones of a long text."""
    keeps_ends = ";" in literal and any(end in literal for end in _ENDS)
    if len(literal) > LONG:
        return (*main, _TOMCAT) if keeps_ends else main
    noisy = lenient != literal or _NOISY.search(literal) is not None
    separated = "\\" in lenient or _SLASH in lenient
    dotted = _DOTTED.search(lenient) is not None
    ways = product(
        _TEXTS if noisy else _TEXTS[:1],
        (True, False) if separated else (True,),
        _ALL_DOTS if dotted else _ALL_DOTS[:1],
    )
    return (*ways, _TOMCAT) if keeps_ends else ways


def _texts(raw: str) -> tuple[str, str]:
    """*raw* decoded and in lower case, encoded slashes marked, bytes that are not UTF-8 as lone
    surrogates: without control characters and overlong forms, and with them.

    They go before UTF-8 is decoded: bytes that they kept apart may belong together.
    """
    if not raw.startswith("/") and (target := _AUTHORITY.match(raw)):
        raw = raw[target.end() :]
    octets = _octets(raw).lower()
    has_slashes_only = octets.count(b"%") == octets.count(b"%2f")
    if has_slashes_only and octets.isascii() and octets.translate(None, _UNSEEN) == octets:
        plain = octets.decode().replace("%2f", _SLASH)
        return plain, plain
    parts = [_ENCODED.sub(_decoded, part) for part in octets.split(b"%2f")]
    literal = _text(parts)
    if all(part.translate(None, _UNSEEN) == part for part in parts):
        return literal, literal
    parts = [_OVERLONG.sub(_short, part.translate(None, _CONTROLS)) for part in parts]
    return _text(parts), literal


def _text(parts: list[bytes]) -> str:
    return _SLASH.join([part.lower().decode("utf-8", "surrogateescape") for part in parts])


def _octets(raw: str) -> bytes:
    """*raw* in UTF-8. Lone surrogates stand for bytes, as Python decodes those that are no UTF-8;
    others have a form of their own."""
    try:
        return raw.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return raw.encode("utf-8", "surrogatepass")


def _decoded(encoded: re.Match[bytes]) -> bytes:
    return bytes.fromhex(encoded[0].replace(b"%", b"").decode("ascii"))


def _short(overlong: re.Match[bytes]) -> bytes:
    first, second = overlong[0]
    return bytes([(first & 1) << 6 | second & 0x3F])


def _read_in(ways: Iterable[Way], lenient: str, literal: str) -> Iterator[str]:
    """The path as it is read in each of *ways*."""
    texts = {"lenient": lenient, "literal": literal}
    separated = {name: _separated(text) for name, text in texts.items()}
    for name, separators, dots in ways:
        if name == "without parameters":
            yield _read(_separated(_PARAMETERS.sub("", literal)), mild=False, dots=dots)
            continue
        text = separated[name] if separators else texts[name]
        yield _read(text, mild=name == "lenient", dots=dots)


def _read(text: str, *, mild: bool, dots: Dots) -> str:
    """*text* as it is read in one way: its segments, as they are, with one slash between them."""
    if mild:
        text = _without_noise(text)
    if dots == "resolved" and "\0" not in text:  # some versions of normpath end there
        text = normpath(f"/{text.lstrip('/')}")
    else:
        if dots != "kept":
            pieces = text.removeprefix("/").split("/")
            text = "/".join(_without_dots(pieces if dots != "resolved" else filter(None, pieces)))
        while "//" in text:
            text = text.replace("//", "/")
    if mild and ("./" in text or text.endswith(".")):
        pieces = text.split("/")
        text = "/".join([piece.rstrip(_BLANKS_AND_DOTS) or piece for piece in pieces])
    return text.strip("/")


def _without_noise(text: str) -> str:
    for end in _ENDS:
        text = text.partition(end)[0]
    text = text.replace(";/", "/")  # quicker than the expression
    if ";" in text:
        text = _PARAMETERS.sub("", text)
    if _may_have_blanks(text):
        text = "/".join([piece.strip(_BLANKS) for piece in text.split("/")])
    return text


def _may_have_blanks(text: str) -> bool:
    """True if *text*, which has no control characters, may have blanks."""
    return " " in text or not text.isascii()


def _hides_segments(text: str) -> bool:
    """True if servers may disagree on which segments `..` removes: some end the path early, or
    drop a segment that begins with its parameters."""
    if any(end in text for end in _ENDS):
        return True
    text = _separated(text)
    return "/;" in text or (_may_have_blanks(text) and _BLANK_NAME.search(text) is not None)


def _separated(text: str) -> str:
    return text.replace("\\", "/").replace(_SLASH, "/")


def _without_dots(pieces: Iterable[str]) -> list[str]:
    stack: list[str] = []
    for piece in pieces:
        if piece == "..":
            del stack[-1:]
        elif piece != ".":
            stack.append(piece)
    return stack


def _spelt(text: str) -> str:
    """*text*, segments with slashes between, with escapes where it needs them. None is a slash."""
    if _UNSPELT.search(text) is None:
        return text
    text = text.replace("%", "%25").replace(_SLASH, "%2F")
    return text if text.isascii() else _OCTETS.sub(_encoded, text)


def _segments(text: str) -> Segments:
    return tuple(_spelt(text).split("/")) if text else ()


def _encoded(octets: re.Match[str]) -> str:
    return "%" + octets[0].encode("utf-8", "surrogateescape").hex("%").upper()


def _looked_at(text: str) -> str:
    """*text* without what is in the middle, if it has more than `MOST_SEGMENTS`."""
    if text.count("/") < MOST_SEGMENTS:
        return text
    half = MOST_SEGMENTS // 2
    return "/".join(text.split("/", half)[:half] + text.rsplit("/", half)[-half:])


# Patterns of paths: `*` is one segment, `**` any number of them, none included.


ONE: Final = "*"
ANY: Final = "**"


@dataclass(frozen=True, slots=True)
class Pattern:
    """The segments of a pattern, written as `normalised_path` writes them, no `**` after another.

    A segment that has more to it than an asterisk, like `v*`, stands for itself.
    """

    segments: Segments

    def fits(self, path: Segments) -> bool:
        """True if the pattern matches *path*.

        When it fails, only the last `**` need take one segment more: no effort is worse than the
        product of both lengths.
        """
        pattern = (*self.segments, "")
        here = at = retry_at = 0
        retry_here: int | None = None
        while at < len(path):
            wanted = pattern[here]
            if wanted == ANY:
                here += 1
                retry_here, retry_at = here, at
            elif wanted in (ONE, path[at]):
                here += 1
                at += 1
            elif retry_here is not None:
                retry_at += 1
                here, at = retry_here, retry_at
            else:
                return False
        return pattern[here] == "" or pattern[here:] == (ANY, "")


@lru_cache(maxsize=1 << 14)
def compiled(text: str) -> Pattern:
    """The pattern in *text*, in any spelling."""
    segments: list[str] = []
    for segment in normalised_path(text).split("/"):
        if segment and not (segment == ANY and segments[-1:] == [ANY]):
            segments.append(segment)
    return Pattern(tuple(segments))


# The endpoint of a request, as a part of keys.


ROUTE: Final = "route"
"""The attribute that has the template of the route, if a framework knows it: `/users/{id}`."""


def endpoints_of(request: Request, endpoints: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The route that a framework chose for *request*; else its normalised path.

    Several if servers may take the path for different resources: of these the ones that a rule for
    *endpoints* is for.

    It is not the pattern of a rule: one counter for all that a pattern fits is what a rule without
    `endpoint` in its key has anyway.
    """
    route = request.attributes.get(ROUTE)
    if route:
        return (route,)
    path = request.path
    return _endpoints_at(path, endpoints) if len(path) > SHORT else _cached_at(path, endpoints)


def _endpoints_at(path: str, endpoints: tuple[str, ...]) -> tuple[str, ...]:
    found = resources(path)
    named = dict.fromkeys(resource for resource, _ in found)
    if len(named) > 1 and endpoints:
        patterns = [compiled(one) for one in endpoints]
        fitting = dict.fromkeys(
            resource
            for resource, segments in found
            if any(one.fits(segments) or one.fits(segments_of(resource)) for one in patterns)
        )
        named = fitting or named
    return tuple(named)


_cached_at = lru_cache(maxsize=4096)(_endpoints_at)
