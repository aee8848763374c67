"""Takes of counters whose cells are known."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakSet

from headgate.stores.shm.layout import HEAD, INLINE, MARK_WORD, remember_all
from headgate.stores.shm.records import (
    FIXED,
    MOST_LIMITS,
    WORD,
    Form,
    form_of,
    prefix,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.algorithms import Algorithm, Outcome
    from headgate.limits import Limit
    from headgate.stores.operations import Outcomes
    from headgate.stores.shm.file import File
    from headgate.stores.shm.records import State


# Counters whose cells are known: the quick way of a take.
#
# A cell that was found once is read again without a search, and believed if it still begins as it
# should: with the same name, under the same limit, with a state of the same fixed size. Then only
# the states are written: to memory if it is a single word that changes, through the journal if
# there are several counters. All that is out of the ordinary (a key not seen lately, a changed
# limit, reservations, slots, logs, two checks of one counter, a cost of 0, a sweep that is due) is
# left to the long way. Tests hold the two together.


MOST_KEYS: Final = 100_000
"""How many cells are remembered, of all groups and limits together: each takes some 350 bytes."""
MOST_OF_A_GROUP: Final = 32
"""How many limits of a group: each policy that is read has objects of its own."""
_HAS_WORDS: Final = sys.byteorder == "little"
"""Whether a word of memory is what the file says it is; if not there is only the long way."""


class Known:
    """Where the cells of some keys of one group are, and what they begin with under *limit*."""

    __slots__ = (
        "__weakref__",
        "_beginning",
        "_length",
        "algorithm",
        "by_key",
        "file",
        "form",
        "group",
        "limit",
        "skipped",
    )

    algorithm: Algorithm[State]
    """There is one as soon as there is a file."""

    def __init__(self, group: str, limit: Limit, form: Form) -> None:
        self.group = group
        self.limit = limit
        self.form = form
        self._beginning = prefix(limit, FIXED)
        self._length = len(self._beginning) + form.size
        self.skipped = HEAD.size + len(self._beginning)
        self.file: File | None = None
        self.by_key: dict[str, tuple[int, bytes]] = {}

    @property
    def is_short(self) -> bool:
        """Whether a counter fits into its cell."""
        return self._length <= INLINE

    def learn(self, file: File, key: str, name: bytes, at: int) -> None:
        """The cell of *key* is at *at* in *file*."""
        if file is not self.file:
            self.by_key = {}
            self.algorithm = file.records.kept(self.limit).algorithm
            self.file = file
        self.by_key[key] = at, HEAD.pack(name, self._length, 0) + self._beginning

    def forget(self) -> None:
        """Know nothing again."""
        self.by_key = {}
        self.file = None


class Asked(NamedTuple):
    """What is asked of the counter of *key*."""

    known: Known
    key: str
    cost: int


class KnownCounters:
    """All that is known of a store, by group and limit."""

    __slots__ = ("_all", "_by_group", "_learned")

    def __init__(self) -> None:
        # By the identity of limits, which are kept with it: to hash one takes longer than the rest.
        self._by_group: dict[str, dict[int, Known]] = {}
        self._all: WeakSet[Known] = WeakSet()
        self._learned = 0

    def of(self, group: str, limit: Limit) -> Known | None:
        """What is known of the counters of *group* under *limit*; None if that cannot be."""
        by_limit = self._by_group.get(group)
        known = None if by_limit is None else by_limit.get(id(limit))
        return known or self._begun(group, limit)

    def learn(self, known: Known, file: File, key: str, place: tuple[bytes, int]) -> None:
        """The counter of *key* has that name and is there. The caller has the file's lock."""
        if key not in known.by_key:
            if self._learned >= MOST_KEYS:
                self._learned = 0
                for one in list(self._all):
                    one.forget()
            self._learned += 1
        known.learn(file, key, *place)

    def _begun(self, group: str, limit: Limit) -> Known | None:
        form = form_of(limit)
        if form is None or not _HAS_WORDS:
            return None
        known = Known(group, limit, form)
        if not known.is_short:
            return None
        by_limit = self._by_group.setdefault(group, {})
        if len(by_limit) >= MOST_OF_A_GROUP:
            by_limit.clear()
        if len(self._by_group) > MOST_LIMITS:
            self._by_group = {group: by_limit}
        by_limit[id(limit)] = known
        self._all.add(known)
        return known


class Found(NamedTuple):
    """A counter that was read: where its state is, what it would become, what is said of it."""

    at: int
    state: State
    after: State
    outcome: Outcome


def take_known(asked: Sequence[Asked], file: File, since_origin: int) -> Outcomes | None:
    """Charge all that is *asked* if all fits, else nothing; None, and nothing is done, if it
    cannot tell quickly. The caller has the turn."""
    if since_origin >= file.sweep_due or file.words[MARK_WORD]:
        return None
    now = since_origin + file.origin
    found = []
    for one in asked:
        counter = _find(one, file, now)
        if counter is None:
            return None
        found.append(counter)
    outcomes = tuple([counter.outcome for counter in found])
    if len(found) == 1:
        if outcomes[0].allowed:
            write_state(file, asked[0].known.form, *found[0][:3])
        return outcomes
    if len({counter.at for counter in found}) < len(found):
        return None
    if all(outcome.allowed for outcome in outcomes):
        pairs = zip(asked, found, strict=True)
        writes = [(counter.at, one.known.form.packed(counter.after)) for one, counter in pairs]
        remember_all(file.memory, file.words, writes)
        return outcomes
    # What would have fitted but for the others has not been charged.
    triples = zip(asked, found, outcomes, strict=True)
    return tuple(
        one.known.algorithm.outcome(counter.state, 0, now) if outcome.allowed else outcome
        for one, counter, outcome in triples
    )


def _find(one: Asked, file: File, now: int) -> Found | None:
    known, key, cost = one
    place = known.by_key.get(key)
    if place is None or known.file is not file or not cost:
        return None
    at, beginning = place
    state_at = at + known.skipped
    if file.memory[at:state_at] != beginning:
        return None
    state = known.form.read(file.memory, state_at)
    return Found(state_at, state, *known.algorithm.take(state, cost, now))


def write_state(file: File, form: Form, at: int, before: State, after: State) -> None:
    """Write the one state that changes, at once: whoever is killed has written it or not."""
    change = form.change(before, after)
    if change is None:
        os.pwrite(file.fd, form.packed(after), at)
    else:
        place, word = change
        file.words[at // WORD + place] = word
