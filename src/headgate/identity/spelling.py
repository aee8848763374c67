"""How a value stands in a key: short, printable, and like no other value.

A key is its parts joined by `&`, each `name=value`:

    value       stands as              when
    acme        acme                   it is short and plain
    a&b {c}     a%26b%20%7Bc%7D        some characters are not: percent-encoded UTF-8
    x * 200     #5d1f... (32 digits)   it would take more than 128 bytes: a digest
    a secret    ~3fa0... (32 digits)   always: a digest

`%`, `&`, `=`, `!`, `#`, `~` are never plain, so no value can pass for another, for a digest, or for
two parts. Digests are BLAKE2b of 16 bytes, keyed with the salt if there is one.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST_VALUE: Final = 128
"""How many bytes a value takes in a key at most."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9._/:@,+*$()-]{0,128}")
_ODD: Final = re.compile(r"[^A-Za-z0-9._/:@,+*$()-]")
_LONGEST_SALT: Final = blake2b.MAX_KEY_SIZE


def hashed(value: str, salt: bytes = b"") -> str:
    """*value*, a secret, as it may leave the process: `~` and 32 hexadecimal digits.

    Without a *salt* a secret that can be guessed can be found by trying.
    """
    return hasher(salt)(value)


def hasher(salt: bytes) -> Callable[[str], str]:
    """What hashes many secrets with one *salt*."""
    begun = _begun(salt, b"headgate secret").copy  # quicker than to begin a new one each time

    def text(value: str) -> str:
        digest = begun()
        digest.update(value.encode("utf-8", "surrogatepass"))
        return f"~{digest.hexdigest()}"

    return text


def speller(salt: bytes) -> Callable[[str], str]:
    """What spells many values, for a policy with this *salt*."""
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
