"""What rules in shadow would have done, for those who must decide whether to put them in force.

Of each such rule it is counted, by the hours of the wall clock and in all, how many requests it was
asked about, how many it would have refused, and to how many different keys. A *candidate*, which is
tried beside a live rule, is compared with what that said to the same request.

A rule counts from when it came in force as it is now: one that is changed, or whose live rule is,
begins anew. What is counted is that of this process; `merged_candidates` puts several together.

There are `MOST` rules at the most, and of each 1,024 hashes of keys in all and 256 of each of 48
hours: 0.25 MB if so many keys are refused every hour, a few kilobytes if few are.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.observability.merging import merged_candidates
from headgate.observability.trials import (
    ANYWAY,
    BOTH,
    DAY,
    KEYS,
    NEWLY_ALLOWED,
    NEWLY_DENIED,
    NOT_ASKED,
    REQUESTS,
    WOULD_DENY,
    Trial,
    Tried,
)
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

__all__ = ["CANDIDATES", "MOST", "Candidates", "Heard", "Tried", "merged_candidates"]

MOST: Final = 100
"""How many rules in shadow are counted; of a policy the first."""
MOST_TOLD: Final = 24 * KEYS
"""How many hashes a snapshot has; where there are more, every rule tells fewer."""

_NOT_DECIDED: Final = frozenset({"fail_open", "fail_closed", "local", "fallback"})
"""Sources that stand in for the store: rules in shadow are not counted while it is gone, so there
is nothing to compare."""


class Heard(NamedTuple):
    """What one rule said to a request of *key*."""

    rule_id: str
    key: str
    is_shadow: bool
    allowed: bool
    source: str


class _Asked(NamedTuple):
    """What is known of one request: see `Candidates.hear`."""

    by_rule: dict[str, Heard]
    without: Collection[str]
    revision: int | None
    admitted: bool
    now_ns: int

    def is_for(self, trial: Trial) -> bool:
        """Whether it was asked when the rule was as it is now."""
        return self.revision is None or self.revision >= trial.revision


class Candidates:
    """What the rules in shadow of this process would have done. Threads may share it.

    *clock* tells the wall clock's time in nanoseconds.
    """

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self.beside: dict[str, str] = {}
        """The candidate of each rule that has one: whoever decides looks here whether it is worth
        while to tell that such a rule has refused something."""
        self._clock = clock
        self._trials: dict[str, Trial] = {}
        self._lock = threading.Lock()

    def put_in_force(
        self, rules: Sequence[Tried], *, revision: int = 0, gone: Collection[str] = ()
    ) -> None:
        """The rules in shadow of a policy of *revision*; those *gone* were in the one before it."""
        now_ns = self._clock()
        some = {one.rule_id: one for one in rules[:MOST]}
        with self._lock:
            changed = [name for name, one in some.items() if self._knows_otherwise(name, one)]
            for name in (*gone, *changed):
                self._forget(name)
            for name, one in some.items():
                if name not in self._trials:
                    self._trials[name] = Trial(one, revision, now_ns)
                if one.candidate_of is not None:
                    self.beside[one.candidate_of] = name
            others = [name for name in self._trials if name not in some]
            for name in others[: max(0, len(self._trials) - MOST)]:  # of policies of long ago
                self._forget(name)

    def hear(
        self,
        said: Iterable[Heard],
        *,
        admitted: bool,
        revision: int | None = None,
        without: Collection[str] = (),
    ) -> None:
        """What the rules said to one request, and whether it was *admitted* by those in force.

        It does not count for rules that have changed since the policy of *revision*. *without* are
        the rules that are for the request and were not asked, as it repeats one that was charged.
        """
        heard = list(said)
        by_rule: dict[str, Heard] = {}
        for one in heard:
            # If it speaks twice, as for two descriptors of one call, it is the refusal that counts.
            if not one.allowed or one.rule_id not in by_rule:
                by_rule[one.rule_id] = one
        asked = _Asked(by_rule, without, revision, admitted, self._clock())
        with self._lock:
            for one in heard:
                if one.is_shadow:
                    self._hear_shadow(one, asked)
                if not one.allowed and one.rule_id in self.beside:
                    self._hear_refusal(one, asked)

    def snapshot(self) -> dict[str, Any]:
        """All that is counted, as data for JSON, for `merged_candidates`; 0.5 MB at the most."""
        now_ns = self._clock()
        with self._lock:
            told = [trial.told(now_ns) for trial in self._trials.values()]
        kept = sum(len(one.keys.hashes) + len(one.day_keys.hashes) for one in told)
        each = KEYS * DAY if kept <= MOST_TOLD else MOST_TOLD // (2 * len(told))
        rules = [
            {
                **one.data,
                "keys": one.keys.cut(each).to_text(),
                "day_keys": one.day_keys.cut(each).to_text(),
            }
            for one in told
        ]
        return {"at": now_ns / SECOND, "rules": rules}

    def begin_anew(self) -> None:
        """Forget what was counted; in a process that was forked that is what its parent did."""
        self._lock = threading.Lock()
        now_ns = self._clock()
        trials = self._trials.copy()
        self._trials = {
            name: Trial(one.tried, one.revision, now_ns) for name, one in trials.items()
        }

    def _knows_otherwise(self, name: str, tried: Tried) -> bool:
        known = self._trials.get(name)
        return known is not None and known.tried != tried

    def _forget(self, name: str) -> None:
        trial = self._trials.pop(name, None)
        live = None if trial is None else trial.tried.candidate_of
        if live is not None and self.beside.get(live) == name:
            del self.beside[live]

    def _hear_shadow(self, one: Heard, asked: _Asked) -> None:
        trial = self._trials.get(one.rule_id)
        if trial is None:
            if len(self._trials) >= MOST:
                return
            # Nobody has announced it: it counts from its first request on.
            trial = Trial(Tried(one.rule_id, None, ""), 0, asked.now_ns)
            self._trials[one.rule_id] = trial
        if one.source in _NOT_DECIDED or not asked.is_for(trial):
            return
        places = [REQUESTS, *_compared(one, trial.tried.candidate_of, asked)]
        if not one.allowed:
            places += (WOULD_DENY,) if asked.admitted else (WOULD_DENY, ANYWAY)
        trial.add(places, None if one.allowed else one.key, asked.now_ns)

    def _hear_refusal(self, one: Heard, asked: _Asked) -> None:
        """A live rule has refused; if its candidate is not for such requests, they would pass."""
        name = self.beside[one.rule_id]
        trial = self._trials.get(name)
        if trial is None or name in asked.by_rule or name in asked.without:
            return
        if one.source not in _NOT_DECIDED and asked.is_for(trial):
            trial.add((NEWLY_ALLOWED,), None, asked.now_ns)


def _compared(one: Heard, name: str | None, asked: _Asked) -> tuple[int, ...]:
    """Where it counts what *one* said, beside what the live rule *name* said."""
    if name is None:
        return ()
    live = asked.by_rule.get(name)
    if live is None and name not in asked.without:
        return (NOT_ASKED,)
    if live is not None and live.source in _NOT_DECIDED:
        return ()
    if live is None or live.allowed:
        return () if one.allowed else (NEWLY_DENIED,)
    return (NEWLY_ALLOWED,) if one.allowed else (BOTH,)


CANDIDATES: Final = Candidates()
"""That of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=CANDIDATES.begin_anew)
