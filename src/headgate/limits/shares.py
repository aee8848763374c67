"""Who is guaranteed how many of the slots of a concurrency limit."""

from __future__ import annotations

import re
from typing import Final

from headgate.errors import LimitError

Shares = tuple[tuple[str, int], ...]
"""The parts of the callers, and how many slots each is guaranteed."""

MOST_SHARES: Final = 32
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


def check_shares(limit: int, shares: object, partition: str | None) -> None:
    """Raise `LimitError` unless *shares* are of distinct parts and no more than *limit* together,
    and *partition*, if there is one, is among them."""
    if not isinstance(shares, tuple) or not shares:
        raise LimitError(f"shares are {shares!r}; expected such as (('gold', 10), ('free', 2))")
    if len(shares) > MOST_SHARES:
        raise LimitError(f"there are {len(shares)} shares; expected at most {MOST_SHARES}")
    total = 0
    for one in shares:
        if not _is_share(one):
            raise LimitError(f"a share is {one!r}; expected a name and its slots, at least 1")
        total += one[1]
    names = [name for name, _ in shares]
    if len(set(names)) < len(names):
        raise LimitError(f"a part has two shares among {', '.join(names)}")
    if total > limit:
        raise LimitError(f"the shares are {total} slots together; the limit has only {limit}")
    if partition is not None and partition not in names:
        raise LimitError(f"the partition is {partition!r}; expected one of {', '.join(names)}")


def _is_share(one: object) -> bool:
    if not isinstance(one, tuple) or len(one) != 2:
        return False
    name, slots = one
    is_name = isinstance(name, str) and _NAME.fullmatch(name) is not None
    return is_name and type(slots) is int and slots >= 1
