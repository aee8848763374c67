"""Statistics of shadow rules, to decide whether to enforce them.

For each shadow rule: the number of requests, of those that it would deny, and of the different keys
of those, by hour and in all. A *candidate*, a shadow rule beside a live one, is compared with the
live rule on the same requests.

The statistics of a rule start when it comes in force; a change of the rule, or of its live rule,
starts them again. They are those of this process; `merged_candidates` merges several.

There are at most `MOST` rules, each with 1,024 hashes of keys in all and 256 for each of 25 hours;
fewer if there are more than 24 rules, or 5 for the hours. That takes 0.25 MB of memory if so many
keys are denied every hour, and a few kilobytes if few are.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from headgate.observability.shadow_stats import (
    ALLOWED,
    ALONE,
    DAY,
    ENFORCED_ALLOWED,
    KEYS,
    KEYS_OF_AN_HOUR,
    LIVE_ALLOWED,
    LIVE_DENIED,
    PASSED_OVER,
    UNMATCHED,
    ShadowRule,
    ShadowStats,
    merged_candidates,
)
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

__all__ = ["CANDIDATES", "MOST", "Candidates", "ShadowRule", "merged_candidates"]

MOST: Final = 100
"""The most shadow rules with statistics: the candidates of a policy, then its first rules."""
MOST_KEYS: Final = 24 * KEYS
MOST_KEYS_OF_DAY: Final = 32 * KEYS
"""The most hashes of keys of all rules together, in all and for the last day."""

_NOT_DECIDED: Final = frozenset({"fail_open", "fail_closed", "local", "fallback", "rule"})
"""Sources without a counter: decisions without the store, or by a limit of 0 in the call, are not
compared."""

RuleOutcome = tuple[str, str, bool, bool, str]
"""The outcome of one rule: rule id, key, True if it is a shadow rule, True if it allows, source."""


class Candidates:
    """The statistics of the shadow rules of this process. Thread-safe.

    *clock* is the wall clock in nanoseconds, *monotonic* a clock that all processes of the machine
    share and that never steps back.
    """

    def __init__(
        self,
        clock: Callable[[], int] = time.time_ns,
        *,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.beside: dict[str, str] = {}
        """The candidate of each live rule that has one, whose denials are reported here."""
        self._clock = clock
        self._monotonic = monotonic
        self._stats: dict[str, ShadowStats] = {}
        self._former: dict[str, None] = {}  # rules that were dropped, the last ones
        self._lock = threading.Lock()

    def put_in_force(
        self, rules: Sequence[ShadowRule], *, revision: int = 0, gone: Collection[str] = ()
    ) -> None:
        """Set the shadow rules of a policy of *revision*; those *gone* were in the one before."""
        first = sorted(rules, key=lambda one: one.candidate_of is None)[:MOST]
        some = {one.rule_id: one for one in rules if one in first}
        with self._lock:
            changed = [name for name, one in some.items() if self._is_changed(name, one)]
            for name in (*gone, *changed):
                self._drop(name)
            for name, one in some.items():
                known = self._stats.get(name)
                if known is None:
                    self._stats[name] = self._new(one, revision)
                else:  # maybe of another policy of this process
                    known.revision = min(known.revision, revision)
                if one.candidate_of is not None:
                    self.beside[one.candidate_of] = name
            others = [name for name in self._stats if name not in some]
            for name in others[: max(0, len(self._stats) - MOST)]:  # of old policies
                self._drop(name)
            self._allot()

    def record(
        self,
        said: Sequence[RuleOutcome],
        *,
        admitted: bool,
        revision: int | None = None,
        without: Collection[str] = (),
    ) -> None:
        """Record the outcomes of the rules for one request, which was *admitted* or denied.

        A rule with several outcomes, for several descriptors of a call, denies if one of them does.
        Rules that have changed since the policy of *revision* do not count. *without* has the rules
        that match the request and were not checked, because it repeats one that was charged.
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
                stats = self._stats_of(name) if is_shadow else None
                if stats is not None and (revision is None or revision >= stats.revision):
                    case = _live_outcome(stats.live, by_rule, without)
                    case += (ENFORCED_ALLOWED if admitted else 0) + (ALLOWED if allowed else 0)
                    stats.add(case, None if allowed else key, now_ns)
                    if is_repeated and not allowed:
                        for one in said:
                            if one[0] == name and not one[3]:
                                stats.add_key(one[1])
                if not allowed and name in self.beside:
                    self._record_denial(name, by_rule, without, revision, now_ns)

    def snapshot(self) -> dict[str, Any]:
        """Return all statistics as data for JSON and `merged_candidates`, at most 1 MB."""
        with self._lock:
            now_ns = self._clock()
            rules = [stats.snapshot(now_ns) for stats in self._stats.values()]
        return {"at": now_ns / SECOND, "seen_ns": self._monotonic(), "rules": rules}

    def after_fork(self) -> None:
        """Start all statistics again in a forked process: the counts are those of its parent."""
        self._lock = threading.Lock()
        known = self._stats.copy()
        self._stats = {name: self._new(one.rule, one.revision) for name, one in known.items()}
        self._allot()

    def _is_changed(self, name: str, rule: ShadowRule) -> bool:
        known = self._stats.get(name)
        return known is not None and known.rule != rule

    def _new(self, rule: ShadowRule, revision: int) -> ShadowStats:
        is_anew = rule.rule_id in self._former
        began_ns = self._monotonic()
        return ShadowStats(rule, revision, self._clock(), began_ns=began_ns, is_anew=is_anew)

    def _drop(self, name: str) -> None:
        stats = self._stats.pop(name, None)
        if stats is None:
            return
        self._former[name] = None
        if len(self._former) > 10 * MOST:
            del self._former[next(iter(self._former))]
        if stats.live is not None and self.beside.get(stats.live) == name:
            del self.beside[stats.live]

    def _allot(self) -> None:
        """Divide the hashes among the rules."""
        count = len(self._stats)
        if count:
            keys = min(KEYS, MOST_KEYS // count)
            of_hour = min(KEYS_OF_AN_HOUR, MOST_KEYS_OF_DAY // (count * (DAY + 1)))
            for stats in self._stats.values():
                stats.allot(keys, of_hour)

    def _stats_of(self, name: str) -> ShadowStats | None:
        """Return the statistics of a shadow rule; None if there are too many."""
        stats = self._stats.get(name)
        if stats is None and len(self._stats) < MOST:
            # It is not of a known policy: its statistics start with its first request.
            stats = self._stats[name] = self._new(ShadowRule(name, None, ""), 0)
            self._allot()
        return stats

    def _record_denial(
        self,
        live: str,
        by_rule: Mapping[str, RuleOutcome],
        without: Collection[str],
        revision: int | None,
        now_ns: int,
    ) -> None:
        """Record a denial by a live rule; a candidate that does not match would allow it."""
        name = self.beside[live]
        stats = self._stats.get(name)
        if stats is None or name in by_rule or name in without:
            return
        if revision is None or revision >= stats.revision:
            stats.add(PASSED_OVER, None, now_ns)


def _live_outcome(
    live: str | None, by_rule: Mapping[str, RuleOutcome], without: Collection[str]
) -> int:
    """Return the outcome of the rule *live* as a part of a case."""
    if live is None:
        return ALONE
    found = by_rule.get(live)
    if found is None:
        return LIVE_ALLOWED if live in without else UNMATCHED
    if found[4] in _NOT_DECIDED:
        return ALONE
    return LIVE_ALLOWED if found[3] else LIVE_DENIED


CANDIDATES: Final = Candidates()
"""The statistics of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=CANDIDATES.after_fork)
