"""What was sent, and what came of it: a few numbers for each request, and tallies of the rest."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple


class Fate(IntEnum):
    """What became of a request."""

    ADMITTED = 0
    REFUSED = 1
    """By the limit that is being tested."""
    ELSEWHERE = 2
    """Refused by something else: another rule, a block, a shortage of capacity."""
    FAILED = 3
    """Not answered, or in a way that says nothing of the limit."""


class Stretch(NamedTuple):
    """When requests were sent and answered, in nanoseconds; place by place of the same one."""

    sent: list[int]
    answered: list[int]


def _numbers() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Record:
    """What a run has seen so far. All times are in nanoseconds, on one clock that never steps."""

    callers: array[int] = field(default_factory=_numbers)
    intended: array[int] = field(default_factory=_numbers)
    """When each request was to be sent."""
    sent: array[int] = field(default_factory=_numbers)
    answered: array[int] = field(default_factory=_numbers)
    """When the head of the response had come, or it was known that none would."""
    fates: array[int] = field(default_factory=_numbers)
    statuses: Counter[int] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    elsewhere: Counter[str] = field(default_factory=Counter)
    """By which other rules requests were refused, and how many."""
    sources: Counter[str] = field(default_factory=Counter)
    """Who decided, and how often, as a server tells those with a debug token."""
    revisions: set[str] = field(default_factory=set)
    """Of the policy, likewise."""
    without_retry_after: int = 0
    with_bad_retry_after: int = 0
    unsent: int = 0
    """How many requests could not be sent before the time was over."""
    busy: float = 0.0
    """How much of the time this process was computing: near 1, its times are its own fault."""
    used_before: dict[int, int] = field(default_factory=dict)
    """By caller, how many units were in use before its first request, as the first answer told: at
    least so many, for others of its requests may have been counted before."""
    used_at_most: dict[int, int] = field(default_factory=dict)
    """The same, if none of them were."""

    _counts: list[int] = field(default_factory=lambda: [0] * len(Fate))

    def add(self, caller: int, times: tuple[int, int, int], fate: Fate) -> None:
        """Record a request: its *times* are those at which it was to be sent, was, was answered."""
        intended, sent, answered = times
        self.callers.append(caller)
        self.intended.append(intended)
        self.sent.append(sent)
        self.answered.append(answered)
        self.fates.append(fate)
        self._counts[fate] += 1

    def __len__(self) -> int:
        return len(self.fates)

    @property
    def caller_count(self) -> int:
        """How many callers there were."""
        return len(set(self.callers))

    def count(self, fate: Fate) -> int:
        """How many requests had this *fate*."""
        return self._counts[fate]

    def by_caller(self, *fates: Fate) -> dict[int, Stretch]:
        """When those requests were sent and answered that had one of *fates*."""
        found: dict[int, Stretch] = {}
        rows = zip(self.callers, self.sent, self.answered, self.fates, strict=True)
        for caller, sent, answered, fate in rows:
            if fate in fates:
                stretch = found.get(caller)
                if stretch is None:
                    stretch = found[caller] = Stretch([], [])
                stretch.sent.append(sent)
                stretch.answered.append(answered)
        return found

    def waits_ns(self, *fates: Fate, from_intended: bool = False) -> list[int]:
        """How long requests with one of *fates* took, the shortest first."""
        begins = self.intended if from_intended else self.sent
        rows = zip(begins, self.answered, self.fates, strict=True)
        return sorted(end - begin for begin, end, fate in rows if fate in fates)

    @property
    def seconds(self) -> float:
        """From the first request sent to the last answer."""
        return (max(self.answered) - min(self.sent)) / 1e9 if len(self) else 0.0
