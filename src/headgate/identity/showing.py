"""Whose counter it is, as it may be told to people: on a page, in a log, in a debug header.

Secrets stand hashed in keys always. What is left may still tell persons apart (addresses, names,
paths), so it is hashed too:

    tenant=acme&ip=192.0.2.7    tenant=~0d3b5a91c2e4&ip=~77c1d0e2ab90
    api_key=~3fa0...            as it is
    api_key!ip=192.0.2.7        api_key!ip=~77c1d0e2ab90
    method=GET, global          as they are
"""

from __future__ import annotations

import re
from typing import Final

from headgate.identity.spelling import hashed
from headgate.rules.model import GLOBAL

_DIGITS: Final = 12
_HARMLESS: Final = frozenset(("method",))
_SHARED: Final = "!shared"
_FOREIGN: Final = "|"
"""What stands in keys that are not of our making, and in none that is: the descriptors of Envoy. In
them a `=` or `&` may be anybody's."""
_IS_DIGEST: Final = re.compile("[~#][0-9a-f]{32}")
"""What `spelling` makes of secrets and long values. An app may have made a key itself, which may
only begin like one."""


def hashed_key(key: str, salt: bytes = b"") -> str:
    """*key*, of a counter, with the value of every part hashed that tells callers apart."""
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
