"""The parts of a key: what each is called, where it comes from, what it is when it is missing.

tenant=acme             the value that the caller sent
api_key=~3fa0...        the same of a secret
api_key!ip=1.2.3.4      missing: the address stands in
api_key!shared          missing: one counter for all of whom it is
endpoint=/login         a property of the request, not of its caller: never missing
global                  one counter for all callers
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.policy.conditions import methods_of
from headgate.policy.model import BUILT_IN_PARTS, GLOBAL, Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.engine.request import Request
    from headgate.policy.identity.identifier import Found
    from headgate.policy.model import Fallback, Identity


# How a value stands in a key: short, printable, and like no other value.
#
# A key is its parts joined by `&`, each `name=value`:
#
#     value       stands as              when
#     acme        acme                   it is short and plain
#     a&b {c}     a%26b%20%7Bc%7D        some characters are not: percent-encoded UTF-8
#     x * 200     #5d1f... (32 digits)   it would take more than 128 bytes: a digest
#     a secret    ~3fa0... (32 digits)   always: a digest
#
# `%`, `&`, `=`, `!`, `#`, `~` are never plain, so no value can pass for another, for a digest, or
# for two parts. Digests are BLAKE2b of 16 bytes, keyed with the salt if there is one.


LONGEST_VALUE: Final = 128
"""The most bytes of a value in a key."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9._/:@,+*$()-]{0,128}")
_ODD: Final = re.compile(r"[^A-Za-z0-9._/:@,+*$()-]")
is_plain: Final = re.compile(r"[A-Za-z0-9._/:@,+*$()-]{1,128}").fullmatch
"""True for a value that is not empty and stands in a key as it is."""
_LONGEST_SALT: Final = blake2b.MAX_KEY_SIZE


def hashed(value: str, salt: bytes = b"") -> str:
    """*value*, a secret, as it may leave the process: `~` and 32 hexadecimal digits.

    Without a *salt* a secret that can be guessed can be found by trying.
    """
    return hasher(salt)(value)


def hasher(salt: bytes) -> Callable[[str], str]:
    """A function that hashes secrets with one *salt*."""
    begun = _begun(salt, b"headgate secret").copy  # quicker than to begin a new one each time

    def text(value: str) -> str:
        digest = begun()
        digest.update(value.encode("utf-8", "surrogatepass"))
        return f"~{digest.hexdigest()}"

    return text


def speller(salt: bytes) -> Callable[[str], str]:
    """A function that spells values, for a policy with this *salt*."""
    is_plain = _PLAIN.fullmatch
    return lambda value: value if is_plain(value) else spelled(value, salt)


def spelled(value: str, salt: bytes = b"") -> str:
    """*value* as it stands in a key: at most `LONGEST_VALUE` characters, all of them printable
    ASCII. Different values are spelled differently, and none like a hashed one."""
    if _PLAIN.fullmatch(value):
        return value
    if len(value) <= LONGEST_VALUE:
        encoded = _ODD.sub(_percent, _bytes(value).decode("latin-1"))
        if len(encoded) <= LONGEST_VALUE:
            return encoded
    digest = _begun(salt, b"headgate value")
    digest.update(_bytes(value))
    return f"#{digest.hexdigest()}"


def _percent(odd: re.Match[str]) -> str:
    return f"%{ord(odd[0]):02X}"


def _bytes(value: str) -> bytes:
    """*value* in UTF-8; halves of surrogate pairs, which HTTP servers let through, included."""
    return value.encode("utf-8", "surrogatepass")


def _begun(salt: bytes, purpose: bytes) -> blake2b:
    """A digest of nothing yet."""
    key = salt if len(salt) <= _LONGEST_SALT else blake2b(salt).digest()
    return blake2b(digest_size=16, key=key, person=purpose)


SECRET_HEADERS: Final = frozenset(
    {"authorization", "proxy-authorization", "cookie", "x-api-key", "x-auth-token"}
)
"""Headers that are secret under every policy. So is every cookie."""

Part = Callable[["Request", "Found"], str | None]
"""The text of one part of the key of a request; None: the rule does not apply."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A value that a caller sends about itself, or not. *named*: it is a source of the identity."""

    name: str
    source: Source
    secret: bool
    named: bool

    def value(self, found: Found) -> str | None:
        """The value of the caller, or the fallback of the policy."""
        return found[self.name] if self.named else found.value(self.source)

    def part(self, fallback: Fallback, salt: bytes) -> Part:
        """The part of a key that this claim makes."""
        name, label, is_named = self.name, spelled(self.name), self.named
        spell = hasher(salt) if self.secret else speller(salt)

        def text(_: Request, found: Found) -> str | None:
            texts = found.part_texts
            if name in texts:
                return texts[name]
            value = found[name] if is_named else self.value(found)
            text = None if value is None else f"{label}={spell(value)}"
            texts[name] = text or _missing(label, found, fallback)
            return texts[name]

        return text


def _missing(label: str, found: Found, fallback: Fallback) -> str | None:
    if fallback == "ip":
        return f"{label}!ip={found.ip}"
    return f"{label}!shared" if fallback == "shared" else None


def claim_of(name: str, identity: Identity) -> Claim:
    """The claim that *name* means in `key_by`: a source, `header:`, `cookie:` or `attribute:`."""
    named = identity.sources.get(name)
    if named is not None:
        return Claim(name, named, secret=_secret(named, identity), named=True)
    source = source_named(name)
    if source.header is not None:
        name = f"header:{source.header}"
    return Claim(name, source, secret=_secret(source, identity), named=False)


def source_named(name: str) -> Source:
    """The source that *name*, such as `header:x-client`, means in `key_by`."""
    kind, _, rest = name.partition(":")
    if rest and kind == "header":
        return Source(header=rest.lower())
    if rest and kind == "cookie":
        return Source(cookie=rest)
    if rest and kind == "attribute":
        return Source(attribute=rest)
    raise OptionError(
        f"no part of a key: {name!r}; it may be {', '.join(BUILT_IN_PARTS)}, a name in identity, "
        "or header:NAME, cookie:NAME, attribute:NAME"
    )


def _secret(source: Source, identity: Identity) -> bool:
    """True if *source* is a secret, by itself or by one that looks in the same place."""
    if source.secret or source.cookie is not None or source.header in SECRET_HEADERS:
        return True
    place = (source.header, source.attribute, source.lookup)
    return source.lookup is None and any(
        other.secret and (other.header, other.attribute, other.lookup) == place
        for other in identity.sources.values()
    )


def part_of(name: str, identity: Identity, salt: bytes, endpoints: tuple[str, ...] = ()) -> Part:
    """The part of keys that *name* means in the `key_by` of a rule for *endpoints*."""
    if name == "endpoint":
        return _endpoint(endpoints)
    built_in = _BUILT_IN.get(name)
    return claim_of(name, identity).part(identity.fallback, salt) if built_in is None else built_in


def joined(parts: Sequence[Part]) -> Part:
    """Several parts as one."""

    def text(request: Request, found: Found) -> str | None:
        texts = []
        for part in parts:
            one = part(request, found)
            if one is None:
                return None
            texts.append(one)
        return "&".join(texts)

    return text


def _endpoint(endpoints: tuple[str, ...]) -> Part:
    return lambda request, found: f"endpoint={spelled(found.endpoint(request, endpoints))}"


_BUILT_IN: Final[dict[str, Part]] = {
    "ip": lambda _request, found: f"ip={found.ip}",
    "method": lambda request, _found: f"method={spelled(methods_of(request)[-1])}",
    "host": lambda _request, found: f"host={spelled(found.host)}",
    GLOBAL: lambda _request, _found: GLOBAL,
}


# The owner of a counter as people may see it: on a page, in a log, in a debug header.
#
# Secrets stand hashed in keys always. What is left may still identify persons (addresses, names,
# paths), so it is hashed too:
#
#     tenant=acme&ip=192.0.2.7    tenant=~0d3b5a91c2e4&ip=~77c1d0e2ab90
#     api_key=~3fa0...            as it is
#     api_key!ip=192.0.2.7        api_key!ip=~77c1d0e2ab90
#     method=GET, global          as they are


_DIGITS: Final = 12
_HARMLESS: Final = frozenset(("method",))
_SHARED: Final = "!shared"
_FOREIGN: Final = "|"
"""A part of keys that are not of our making, and of no other: the descriptors of Envoy. In
them a `=` or `&` may be part of a value."""
_IS_DIGEST: Final = re.compile("[~#][0-9a-f]{32}")
"""The form of secrets and long values in keys. An app may have made a key itself, which may
only begin like one."""


def hashed_key(key: str, salt: bytes = b"") -> str:
    """*key*, of a counter, with the value of every part hashed that identifies a caller."""
    if _FOREIGN in key:
        return _digest(key, salt)
    return "&".join(_hashed_part(part, salt) for part in key.split("&"))


def _hashed_part(part: str, salt: bytes) -> str:
    name, equals, value = part.partition("=")
    if not equals:
        is_harmless = part == GLOBAL or part.endswith(_SHARED)
        return part if is_harmless else _digest(part, salt)
    if name in _HARMLESS or _IS_DIGEST.fullmatch(value):
        return part
    return f"{name}={_digest(value, salt)}"


def _digest(value: str, salt: bytes) -> str:
    return hashed(value, salt)[: 1 + _DIGITS]
