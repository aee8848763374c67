"""What rules in shadow would have done, for those who must decide whether to put them in force.

Of each such rule it is counted, by the hours of the wall clock and in all, how many requests it was
asked about, how many it would have refused, and to how many different keys. A *candidate*, which is
tried beside a live rule, is compared with what that said to the same request.

A rule counts from when it came in force as it is now: one that is changed, or whose live rule is,
begins anew. What is counted is that of this process; `merged_candidates` puts several together.

There are `MOST` rules at the most, and of each 1,024 hashes of keys in all and 256 of each of 25
hours; fewer of each where there are more than 24 rules, or 5 for the hours. That is 0.25 MB of
memory if so many keys are refused every hour, and a few kilobytes if few are.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.observability.shadow_stats import (
    ADMITTED,
    ALLOWED,
    ALONE,
    DAY,
    KEYS,
    KEYS_OF_AN_HOUR,
    NOT_ASKED,
    PASSED,
    PASSED_OVER,
    REFUSED,
    Trial,
    Tried,
    merged_candidates,
)
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

__all__ = ["CANDIDATES", "MOST", "Candidates", "Heard", "Tried", "merged_candidates"]

MOST: Final = 100
"""How many rules in shadow are counted; of a policy its candidates, then the first."""
MOST_KEYS: Final = 24 * KEYS
MOST_KEYS_OF_DAY: Final = 32 * KEYS
"""How many hashes of keys there are of all rules together, in all and of the last day."""

_NOT_DECIDED: Final = frozenset({"fail_open", "fail_closed", "local", "fallback", "rule"})
"""Sources that stand in for the store: rules in shadow are not counted while it is gone, or while a
call brings a limit of 0 with it, so there is nothing to compare."""

Spoken = tuple[str, str, bool, bool, str]
"""As `Heard`; whoever is in a hurry hands over plain tuples."""


class Heard(NamedTuple):
    """What one rule said to a request of *key*."""

    rule_id: str
    key: str
    is_shadow: bool
    allowed: bool
    source: str


class Candidates:
    """What the rules in shadow of this process would have done. Threads may share it.

    *clock* tells the wall clock's time in nanoseconds, *monotonic* one that all processes of the
    machine share and that never goes back.
    """

    def __init__(
        self,
        clock: Callable[[], int] = time.time_ns,
        *,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.beside: dict[str, str] = {}
        """The candidate of each rule that has one: whoever decides looks here whether it is worth
        while to tell that such a rule has refused something."""
        self._clock = clock
        self._monotonic = monotonic
        self._trials: dict[str, Trial] = {}
        self._former: dict[str, None] = {}  # rules that were forgotten, the last ones
        self._lock = threading.Lock()

    def put_in_force(
        self, rules: Sequence[Tried], *, revision: int = 0, gone: Collection[str] = ()
    ) -> None:
        """The rules in shadow of a policy of *revision*; those *gone* were in the one before it."""
        first = sorted(rules, key=lambda one: one.candidate_of is None)[:MOST]
        some = {one.rule_id: one for one in rules if one in first}
        with self._lock:
            changed = [name for name, one in some.items() if self._knows_otherwise(name, one)]
            for name in (*gone, *changed):
                self._forget(name)
            for name, one in some.items():
                known = self._trials.get(name)
                if known is None:
                    self._trials[name] = self._begun(one, revision)
                else:  # of another policy of this process, it may be
                    known.revision = min(known.revision, revision)
                if one.candidate_of is not None:
                    self.beside[one.candidate_of] = name
            others = [name for name in self._trials if name not in some]
            for name in others[: max(0, len(self._trials) - MOST)]:  # of policies of long ago
                self._forget(name)
            self._allot()

    def hear(
        self,
        said: Sequence[Spoken],
        *,
        admitted: bool,
        revision: int | None = None,
        without: Collection[str] = (),
    ) -> None:
        """What the rules said to one request, and whether it was *admitted* by those in force.

        A rule that speaks more than once, as to several descriptors of a call, says no if it does
        once. It does not count for rules that have changed since the policy of *revision*.
        *without* are the rules that are for the request and were not asked, as it repeats one that
        was charged.
        """
        by_rule = {one[0]: one for one in said}
        is_repeated = len(by_rule) != len(said)
        if is_repeated:
            by_rule |= {one[0]: one for one in said if not one[3]}
        with self._lock:
            now_ns = self._clock()
            for name, key, is_shadow, allowed, source in by_rule.values():
                if source in _NOT_DECIDED:
                    continue
                trial = self._trial(name) if is_shadow else None
                if trial is not None and (revision is None or revision >= trial.revision):
                    case = _said(trial.live, by_rule, without)
                    case += (ADMITTED if admitted else 0) + (ALLOWED if allowed else 0)
                    trial.add(case, None if allowed else key, now_ns)
                    if is_repeated and not allowed:
                        _add_keys(trial, name, said)
                if not allowed and name in self.beside:
                    self._hear_refusal(name, by_rule, without, revision, now_ns)

    def snapshot(self) -> dict[str, Any]:
        """All that is counted, as data for JSON, for `merged_candidates`; 1 MB at the most."""
        with self._lock:
            now_ns = self._clock()
            rules = [trial.told(now_ns) for trial in self._trials.values()]
        return {"at": now_ns / SECOND, "seen_ns": self._monotonic(), "rules": rules}

    def after_fork(self) -> None:
        """Forget what was counted; in a process that was forked that is what its parent did."""
        self._lock = threading.Lock()
        trials = self._trials.copy()
        self._trials = {name: self._begun(one.tried, one.revision) for name, one in trials.items()}
        self._allot()

    def _knows_otherwise(self, name: str, tried: Tried) -> bool:
        known = self._trials.get(name)
        return known is not None and known.tried != tried

    def _begun(self, tried: Tried, revision: int) -> Trial:
        return Trial(
            tried,
            revision,
            self._clock(),
            began_ns=self._monotonic(),
            is_anew=tried.rule_id in self._former,
        )

    def _forget(self, name: str) -> None:
        trial = self._trials.pop(name, None)
        if trial is None:
            return
        self._former[name] = None
        if len(self._former) > 10 * MOST:
            del self._former[next(iter(self._former))]
        if trial.live is not None and self.beside.get(trial.live) == name:
            del self.beside[trial.live]

    def _allot(self) -> None:
        """Have every rule keep as many hashes as it may."""
        count = len(self._trials)
        if count:
            keys = min(KEYS, MOST_KEYS // count)
            of_hour = min(KEYS_OF_AN_HOUR, MOST_KEYS_OF_DAY // (count * (DAY + 1)))
            for trial in self._trials.values():
                trial.allot(keys, of_hour)

    def _trial(self, name: str) -> Trial | None:
        """That of a rule in shadow; None if there are too many."""
        trial = self._trials.get(name)
        if trial is None and len(self._trials) < MOST:
            # Nobody has announced it: it counts from its first request on.
            trial = self._trials[name] = self._begun(Tried(name, None, ""), 0)
            self._allot()
        return trial

    def _hear_refusal(
        self,
        live: str,
        by_rule: Mapping[str, Spoken],
        without: Collection[str],
        revision: int | None,
        now_ns: int,
    ) -> None:
        """A live rule has refused; if its candidate is not for such requests, they would pass."""
        name = self.beside[live]
        trial = self._trials.get(name)
        if trial is None or name in by_rule or name in without:
            return
        if revision is None or revision >= trial.revision:
            trial.add(PASSED_OVER, None, now_ns)


def _said(live: str | None, by_rule: Mapping[str, Spoken], without: Collection[str]) -> int:
    """What the rule *live* said."""
    if live is None:
        return ALONE
    found = by_rule.get(live)
    if found is None:
        return PASSED if live in without else NOT_ASKED
    if found[4] in _NOT_DECIDED:
        return ALONE
    return PASSED if found[3] else REFUSED


def _add_keys(trial: Trial, name: str, said: Sequence[Spoken]) -> None:
    for one in said:
        if one[0] == name and not one[3]:
            trial.add_key(one[1])


CANDIDATES: Final = Candidates()
"""That of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=CANDIDATES.after_fork)
