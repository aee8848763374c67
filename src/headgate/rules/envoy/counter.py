"""The name of the counter that a descriptor of a request counts on.

It is made of the domain and the entries, and of nothing else: not of the unit, so that a limit
that is changed goes on with what was used. The parts are joined with `|`, and whatever could be
mistaken for one, or could not be printed, is percent-encoded. If that is too long, a digest stands
for the entries. Two different descriptors never have one name.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_NAME: Final = 200
"""The most characters in a name."""

_DOMAIN_LEFT: Final = 100
"""The most characters of the domain that stand in front of a digest."""


def counter_name(domain: str, entries: Sequence[tuple[str, str]]) -> str:
    """The name of the counter for *entries* in *domain*: unambiguous, bounded, printable."""
    parts = (domain, *chain.from_iterable(entries))
    name = "|".join(parts)
    if name.count("|") >= len(parts) or "%" in name or not name.isprintable():
        name = "|".join(map(_plain, parts))
    if len(name) > LONGEST_NAME:
        digest = blake2b(name.encode(), digest_size=20).hexdigest()
        return f"{_plain(domain)[:_DOMAIN_LEFT]}|{digest}"
    return name


def _plain(part: str) -> str:
    return quote(part, safe=" /:;,.@=+*?&#!$'()[]{}<>^`~", errors="surrogatepass")
