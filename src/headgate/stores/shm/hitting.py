"""The quickest way of all: a hit on one counter under a paced limit, whose cell is known.

It is `known.KnownCounters.take` and `algorithms.gcra` written out: two reads, two additions, a
comparison and a write, between taking the turn and giving it back. What is read and written is the
memory itself, as long as it is a single word that changes. What is out of the ordinary goes the
long way. The contract holds them together.
"""
# ruff: noqa: SLF001 (decisions are made by filling their slots: see `decisions.paced`)

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Final

from headgate.decisions import paced_decisions
from headgate.stores.port import checked_cost
from headgate.stores.shm.faults import store_error
from headgate.stores.shm.file import CLOSED
from headgate.stores.shm.journal import MARK, NOTHING
from headgate.stores.shm.layout import CONTROL_AT
from headgate.stores.shm.records import NUMBER
from headgate.stores.shm.turn import GIVE_BACK, TAKE

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.decisions import Decision
    from headgate.limits.model import PacedLimit
    from headgate.stores.port import Hitter
    from headgate.stores.shm.known import Known

_MARK_END: Final = CONTROL_AT + MARK.size
_WORD: Final = 8
"""Bytes that a processor writes at once: a kill comes before or after."""
_TWO_WORDS: Final = 1 << 8 * _WORD
"""From here on a number does not fit into one word."""


def paced_hitter(  # noqa: C901
    limit: PacedLimit, known: Known, read: Clock, slowly: Hitter
) -> Hitter:
    """Hits on the counters of one group under *limit*, as far as they are known."""
    pace = limit.pace
    quota, per_ns, unit, span = pace.quota, pace.ticks_per_ns, pace.ticks_per_unit, pace.span
    admitted, refused = paced_decisions(limit, pace)
    skipped, end = known.skipped, known.end
    size = NUMBER.size
    flock, pwrite, from_bytes = fcntl.flock, os.pwrite, int.from_bytes

    def hit(key: str, cost: int = 1) -> Decision:  # noqa: C901 (the fast path: one function)
        need = unit
        if cost != 1 or type(cost) is not int:
            if not 0 < checked_cost(cost) <= quota:
                return slowly(key, cost)
            need = unit * cost
        file = known.file
        try:
            at, beginning = known.by_key[key]
        except (KeyError, TypeError):
            file = None
        if file is None:
            return slowly(key, cost)
        after = None
        with file.lock:
            fd, memory = file.fd, file.memory
            if fd != CLOSED:
                try:
                    try:
                        flock(fd, TAKE)
                    except BlockingIOError:
                        file.patience.take_turn(fd)
                    now = read()
                    cell = memory[at : at + end]
                    if (
                        cell.startswith(beginning)
                        and now < file.sweep_due
                        and memory[CONTROL_AT:_MARK_END] == NOTHING
                    ):
                        full_at = from_bytes(cell[skipped:], "little", signed=True)
                        now *= per_ns
                        after = (full_at if full_at > now else now) + need
                        in_use = after - now
                        if in_use <= span:
                            place = at + skipped
                            if full_at >= 0 and after < _TWO_WORDS:
                                memory[place : place + _WORD] = after.to_bytes(_WORD, "little")
                            else:
                                pwrite(fd, after.to_bytes(size, "little", signed=True), place)
                except OSError as error:
                    raise store_error(error) from error
                finally:
                    flock(fd, GIVE_BACK)
        if after is None:
            return slowly(key, cost)
        if in_use <= span:
            decision = admitted()
            decision._key = key
            decision._in_use = in_use
            return decision
        refusal = refused()
        refusal._key = key
        refusal._in_use = in_use
        refusal._need = need
        return refusal

    return hit
