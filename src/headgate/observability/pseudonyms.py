"""Keys as they may be told: the same name for the same key, and no way back to it.

A key may hold a user's name or an address. What is logged, traced or shown tells a keyed hash of
it: whoever has the salt can compute it for a key they know (`headgate` does, from the same salt),
nobody else can try names until one fits.
"""

from __future__ import annotations

import secrets
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTH: Final = 16
"""Characters of a pseudonym."""

_REMEMBERED: Final = 4096
_PURPOSE: Final = b"headgate-told"


def pseudonyms(salt: bytes | None = None) -> Callable[[str], str]:
    """What makes pseudonyms of keys: those of an equal *salt* are equal; without one, those of this
    call alone."""
    secret = salt or secrets.token_bytes(32)
    if len(secret) > blake2b.MAX_KEY_SIZE:
        secret = blake2b(secret).digest()

    @lru_cache(maxsize=_REMEMBERED)
    def pseudonym(key: str) -> str:
        text = key.encode("utf-8", "surrogatepass")
        return blake2b(text, digest_size=LENGTH // 2, key=secret, person=_PURPOSE).hexdigest()

    return pseudonym
