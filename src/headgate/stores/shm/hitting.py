"""The quickest way of all: a hit on one counter whose cell is known.

Under a paced limit it is `known.take_known` and `algorithms.gcra` written out: three reads, two
additions, a comparison and a write, between taking the turn and giving it back. What is read and
written is the memory itself, as long as it is a single word that changes. What is out of the
ordinary goes the long way. The contract holds them together.
"""
# ruff: noqa: SLF001 (decisions are made by filling their slots: see `decisions.paced`)

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from headgate.decisions import paced_decisions
from headgate.stores.port import checked_cost, concluded
from headgate.stores.shm.faults import store_error
from headgate.stores.shm.file import CLOSED
from headgate.stores.shm.journal import MARK_WORD
from headgate.stores.shm.known import write_state
from headgate.stores.shm.records import LARGEST_WORD, NUMBER, WORD
from headgate.stores.shm.turn import GIVE_BACK, MOST_TURNS, TAKE, TURNS_WORD

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.decisions import Decision
    from headgate.limits.model import PacedLimit
    from headgate.stores.port import Hitter
    from headgate.stores.shm.known import Known


def paced_hitter(  # noqa: C901
    limit: PacedLimit, known: Known, read: Clock, slowly: Hitter
) -> Hitter:
    """Hits on the counters of one group under *limit*, as far as they are known."""
    pace = limit.pace
    quota, per_ns, unit, span = pace.quota, pace.ticks_per_ns, pace.ticks_per_unit, pace.span
    admitted, refused = paced_decisions(limit, pace)
    skipped, of_state = known.skipped, known.form.read
    largest = (1 << 8 * NUMBER.size - 1) - 1
    flock, pwrite = fcntl.flock, os.pwrite

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
            fd, words = file.fd, file.words
            if fd != CLOSED:
                try:
                    try:
                        try:
                            flock(fd, TAKE)
                            words[TURNS_WORD] = (words[TURNS_WORD] + 1) & MOST_TURNS
                        except BlockingIOError:
                            file.patience.take_turn(fd)
                        now = read()
                        place = at + skipped
                        if (
                            file.memory[at:place] == beginning
                            and now < file.sweep_due
                            and not words[MARK_WORD]
                        ):
                            word = place // WORD
                            full_at, more = words[word], words[word + 1]
                            if more:
                                full_at = of_state(file.memory, place)
                            now *= per_ns
                            after = (full_at if full_at > now else now) + need
                            in_use = after - now
                            if in_use <= span:
                                if not more and after <= LARGEST_WORD:
                                    words[word] = after
                                elif after <= largest:
                                    pwrite(fd, NUMBER.packed(after), place)
                                else:
                                    after = None
                    finally:
                        flock(fd, GIVE_BACK)
                except OSError as error:
                    if after is not None:
                        raise store_error(error) from error
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


def window_hitter(known: Known, read: Clock, slowly: Hitter) -> Hitter:
    """Hits on the counters of one group under another limit, as far as they are known."""
    limit, form, skipped = known.limit, known.form, known.skipped
    flock = fcntl.flock

    def hit(key: str, cost: int = 1) -> Decision:
        if (cost != 1 or type(cost) is not int) and not checked_cost(cost):
            return slowly(key, cost)
        file = known.file
        try:
            at, beginning = known.by_key[key]
        except (KeyError, TypeError):
            file = None
        if file is None:
            return slowly(key, cost)
        outcome = None
        with file.lock:
            fd = file.fd
            if fd != CLOSED:
                try:
                    try:
                        file.patience.take_turn(fd)
                        now = read()
                        place = at + skipped
                        if (
                            file.memory[at:place] == beginning
                            and now < file.sweep_due
                            and not file.words[MARK_WORD]
                        ):
                            state = form.read(file.memory, place)
                            after, outcome = known.algorithm.take(state, cost, now + file.origin)
                            if outcome.allowed:
                                write_state(file, form, place, state, after)
                    finally:
                        flock(fd, GIVE_BACK)
                except OSError as error:
                    if outcome is not None:
                        raise store_error(error) from error
        return slowly(key, cost) if outcome is None else concluded(key, limit, outcome)

    return hit
