"""How many examples and schedules the tests try: an eighth, or as many as HEADGATE_EXPLORE says.

`HEADGATE_EXPLORE=1 make test` tries as many as are written in the tests, `HEADGATE_EXPLORE=20`
twenty times as many.
"""

from __future__ import annotations

import os

EXPLORE = int(os.environ.get("HEADGATE_EXPLORE", "0"))
_FEWEST = 20


def example_count(count: int) -> int:
    """*count*, as many times as is to be explored; an eighth of it in an ordinary run."""
    return count * EXPLORE or min(count, max(_FEWEST, count // 8))
