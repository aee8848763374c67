"""Telling a store that has come back what was admitted without it. No I/O.

What still counts here is taken there, as much of it as is left and no more: nobody starts with a
debt because of an outage. A few counters at a time, with pauses that differ from process to
process, so that a fleet does not trip the store it has just got back. What the store was asked is
owed no longer, whether or not an answer came; only what it surely did not do is owed still.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import StoreError
from headgate.stores.operations import Check, Take, TakeEach

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from headgate.fallback.owing import Owing

BATCH: Final = 50
"""How many counters are told of at once."""

LONGEST_START: Final = 1.0
"""Seconds until the first batch, at most: each process draws its own time."""

PAUSE: Final = 0.05
"""Seconds between two batches: half as many to twice as many."""

Steps = Generator[float | TakeEach, Any, None]
"""Yields seconds to wait, and operations to be run; is sent the reply of those, or a `StoreError`
in its place. It ends when all is told, or when the store fails."""


def merging(owing: Owing, used: Callable[[str, str], int], random: Random) -> Steps:
    """Tell the store all that is in *owing*, as far as it is in use here still, as *used* says."""
    yield random.uniform(0, LONGEST_START)
    while owed := owing.take_some(BATCH):
        counting = [(check, min(check.cost, used(check.group, check.key))) for check in owed]
        asked = [_costing(check, amount) for check, amount in counting if amount]
        if asked:
            reply = yield _taking(asked)
            if isinstance(reply, StoreError):
                owing.add(asked if reply.is_undone else ())
                return
            owing.add([one for one, said in zip(asked, reply, strict=True) if _is_undone(said)])
            rest = _what_is_left(asked, reply)
            if rest and isinstance((yield _taking(rest)), StoreError):
                return
        yield random.uniform(PAUSE / 2, PAUSE * 2)


def _is_undone(said: object) -> bool:
    return isinstance(said, StoreError) and said.is_undone


def _what_is_left(asked: Sequence[Check], reply: Sequence[Any]) -> list[Check]:
    """What the refused of *asked* can still have."""
    rest = []
    for check, outcomes in zip(asked, reply, strict=True):
        if isinstance(outcomes, StoreError) or outcomes[0].allowed:
            continue
        if left := outcomes[0].remaining:
            rest.append(_costing(check, left))
    return rest


def _taking(checks: Sequence[Check]) -> TakeEach:
    return TakeEach(tuple([Take((check,)) for check in checks]))


def _costing(check: Check, amount: int) -> Check:
    return Check(check.group, check.key, check.limit, amount)
