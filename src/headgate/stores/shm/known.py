"""Counters whose cells are known: the quick way of a take.

A cell that was found once is read again without a search, and believed if it still begins as it
should: with the same name, under the same limit, with a state of the same fixed size. Then only the
states are written, through the journal if there are several. All that is out of the ordinary (a key
not seen lately, a changed limit, reservations, slots, logs, two checks of one counter, a cost of 0,
a sweep that is due) is left to the long way. Tests hold the two together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.stores.port import concluded
from headgate.stores.shm.cells import HEAD, INLINE
from headgate.stores.shm.journal import MARK, NOTHING, write_all
from headgate.stores.shm.layout import CONTROL_AT
from headgate.stores.shm.records import FIXED, MOST_LIMITS, Form, form_of, prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.algorithms import Algorithm
    from headgate.decisions import Decision
    from headgate.limits import Limit
    from headgate.stores.operations import Check
    from headgate.stores.shm.file import File
    from headgate.stores.shm.records import State
    from headgate.stores.shm.transaction import Transaction

MOST_KEYS: Final = 100_000
"""How many cells are remembered of each group and limit."""
_MARK_END: Final = CONTROL_AT + MARK.size
MOST_OF_A_GROUP: Final = 32
"""How many limits of a group: each policy that is read has objects of its own."""


class Known:
    """Where the cells of some keys of one group are, and what they begin with under *limit*."""

    __slots__ = (
        "_beginning",
        "_length",
        "algorithm",
        "by_key",
        "end",
        "file",
        "form",
        "limit",
        "skipped",
    )

    algorithm: Algorithm[State]
    """There is one as soon as there is a file."""

    def __init__(self, limit: Limit, form: Form) -> None:
        self.limit = limit
        self.form = form
        self._beginning = prefix(limit, FIXED)
        self._length = len(self._beginning) + form.size
        self.skipped = HEAD.size + len(self._beginning)
        self.end = self.skipped + form.size
        self.file: File | None = None
        self.by_key: dict[str, tuple[int, bytes]] = {}

    def learn(self, file: File, key: str, name: bytes, at: int) -> None:
        """The cell of *key* is at *at* in *file*."""
        if file is not self.file or len(self.by_key) >= MOST_KEYS:
            self.by_key = {}
            self.algorithm = file.records.kept(self.limit).algorithm
            self.file = file
        self.by_key[key] = at, HEAD.pack(name, self._length, 0) + self._beginning


class KnownCounters:
    """All that is known of a store, by group and limit."""

    __slots__ = ("_by_group",)

    def __init__(self) -> None:
        # By the identity of limits, which are kept with it: to hash one takes longer than the rest.
        self._by_group: dict[str, dict[int, Known]] = {}

    def of(self, group: str, limit: Limit) -> Known | None:
        """What is known of the counters of *group* under *limit*; None if that cannot be."""
        by_limit = self._by_group.get(group)
        known = None if by_limit is None else by_limit.get(id(limit))
        return known or self._begun(group, limit)

    def learn(self, file: File, transaction: Transaction, checks: Sequence[Check]) -> None:
        """Remember where the counters of *checks* are, which *transaction* asked for."""
        for check in checks:
            known = self.of(check.group, check.limit)
            if known is not None:
                place = transaction.own_place(check.group, check.key, check.limit)
                if place is not None:
                    known.learn(file, check.key, *place)

    def take(self, checks: Sequence[Check], file: File, since_origin: int) -> list[Decision] | None:
        """Charge all *checks* if all fit, else none; None, and nothing is done, if it cannot tell
        quickly. The caller has the turn."""
        memory, now = file.memory, since_origin + file.origin
        if since_origin >= file.sweep_due or memory[CONTROL_AT:_MARK_END] != NOTHING:
            return None
        asked = []
        seen = set()
        fits = True
        for check in checks:
            known = self.of(check.group, check.limit)
            if known is None or known.file is not file or not check.cost:
                return None
            place = known.by_key.get(check.key)
            if place is None or place[0] in seen:
                return None
            at, beginning = place
            seen.add(at)
            cell = memory[at : at + known.end]
            if not cell.startswith(beginning):
                return None
            state = known.form.unpacked(cell[known.skipped :])
            wait = known.algorithm.wait(state, check.cost, now)
            fits = fits and wait == 0
            asked.append((check, known, at, state, wait))
        writes = []
        decisions = []
        for check, known, at, state, wait in asked:
            after = known.algorithm.charge(state, check.cost, now) if fits else state
            if fits:
                writes.append((at + known.skipped, known.form.packed(after)))
            outcome = known.algorithm.outcome(after, wait, now)
            decisions.append(concluded(check.key, check.limit, outcome))
        if writes:
            write_all(file.fd, writes)
        return decisions

    def _begun(self, group: str, limit: Limit) -> Known | None:
        form = form_of(limit)
        if form is None or HEAD.size + len(prefix(limit, FIXED)) + form.size > HEAD.size + INLINE:
            return None
        by_limit = self._by_group.setdefault(group, {})
        if len(by_limit) >= MOST_OF_A_GROUP:
            by_limit.clear()
        if len(self._by_group) > MOST_LIMITS:
            self._by_group = {group: by_limit}
        known = by_limit[id(limit)] = Known(limit, form)
        return known
