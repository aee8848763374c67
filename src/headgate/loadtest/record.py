"""The record of a load test: times and result of each request, and totals."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple


class Result(IntEnum):
    """The result of a request."""

    ALLOWED = 0
    DENIED = 1
    """By the tested limit."""
    ELSEWHERE = 2
    """Denied by something else: another rule, a block, a lack of capacity."""
    FAILED = 3
    """No response, or one without a decision."""


class Times(NamedTuple):
    """The times at which requests were sent and answered, in nanoseconds, in the same order."""

    sent: list[int]
    answered: list[int]


def _numbers() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Record:
    """The record so far. Times are in nanoseconds on a monotonic clock."""

    callers: array[int] = field(default_factory=_numbers)
    intended: array[int] = field(default_factory=_numbers)
    """The due time of each request."""
    sent: array[int] = field(default_factory=_numbers)
    answered: array[int] = field(default_factory=_numbers)
    """The time of the head of the response, or of the failure."""
    results: array[int] = field(default_factory=_numbers)
    statuses: Counter[int] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    elsewhere: Counter[str] = field(default_factory=Counter)
    """Denials by other rules or causes."""
    without_retry_after: int = 0
    with_bad_retry_after: int = 0
    unsent: int = 0
    """Requests that could not be sent in time."""
    busy: float = 0.0
    """The share of CPU time of this process: near 1, it is too slow for the load."""
    used_before: dict[int, int] = field(default_factory=dict)
    """By caller, the units in use before its first request by the first response: a lower bound, as
    other requests of the caller may have been counted before."""
    used_at_most: dict[int, int] = field(default_factory=dict)
    """The upper bound: none of them were."""

    _counts: list[int] = field(default_factory=lambda: [0] * len(Result))

    def add(self, caller: int, times: tuple[int, int, int], result: Result) -> None:
        """Record a request: its *times* are due, sent and answered."""
        intended, sent, answered = times
        self.callers.append(caller)
        self.intended.append(intended)
        self.sent.append(sent)
        self.answered.append(answered)
        self.results.append(result)
        self._counts[result] += 1

    def __len__(self) -> int:
        return len(self.results)

    @property
    def caller_count(self) -> int:
        """The number of callers."""
        return len(set(self.callers))

    def count(self, result: Result) -> int:
        """Return the number of requests with *result*."""
        return self._counts[result]

    def by_caller(self, *results: Result) -> dict[int, Times]:
        """Return the times of requests with one of *results*, by caller."""
        found: dict[int, Times] = {}
        rows = zip(self.callers, self.sent, self.answered, self.results, strict=True)
        for caller, sent, answered, result in rows:
            if result in results:
                times = found.get(caller)
                if times is None:
                    times = found[caller] = Times([], [])
                times.sent.append(sent)
                times.answered.append(answered)
        return found

    def waits_ns(self, *results: Result, from_intended: bool = False) -> list[int]:
        """Return the durations of requests with one of *results*, the shortest first."""
        begins = self.intended if from_intended else self.sent
        rows = zip(begins, self.answered, self.results, strict=True)
        return sorted(end - begin for begin, end, result in rows if result in results)

    @property
    def seconds(self) -> float:
        """Seconds from the first request to the last response."""
        return (max(self.answered) - min(self.sent)) / 1e9 if len(self) else 0.0
