"""Could a limit have admitted this? The mathematics of the verdict.

All that a client knows of a decision is that it was made between the moment at which the request
was sent and the moment at which the answer came. So the question is: are there moments, one in each
of these stretches of time, at which the limit could have admitted all of them?

Sort what was sent and what was answered, each by itself: whatever the true moments were, the k-th
of them lies between the k-th sending and the k-th answer. (At least k requests were decided by
then, so k were sent before; the same from the other end.) Each decision is now made as early as the
limit lets it, counted from a counter that nobody has used:

    moment(k)  =  the first instant from max(sent(k), moment(k - 1)) on at which it fits

In every algorithm a unit weighs less the longer ago it was taken: bucket, window, log and estimated
window alike. So earliest is best: no other choice leaves more room at any later time, and if
`moment(k) > answered(k)` for some k, no choice would have done. The limit was exceeded, whatever
the network and the scheduler did. This covers every interval of every length in one pass. If all
moments are found, the limit may well have been kept: nothing in the answers says otherwise.

The arithmetic is that of `headgate.algorithms` itself, which has its own proofs and oracles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.algorithms import algorithm_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.algorithms import Algorithm
    from headgate.limits import Limit


class Excess(NamedTuple):
    """So many were *admitted* in a stretch of time in which *at_most* so many could have been."""

    admitted: int
    at_most: int
    began_ns: int
    ended_ns: int


class _Counters:
    """A counter for each of *limits*, none of them used, counted from *origin*."""

    def __init__(self, limits: Sequence[Limit], cost: int, origin: int) -> None:
        self._algorithms: list[Algorithm[Any]] = [algorithm_for(limit, origin) for limit in limits]
        self._states: list[Any] = [None] * len(limits)
        self._cost = cost

    def first_fit(self, now: int) -> int:
        """The first moment from *now* on at which a request fits; there is no way back from it: a
        log forgets what has left by then."""
        cost, pairs = self._cost, list(zip(self._algorithms, self._states, strict=True))
        while wait := max([algorithm.wait(state, cost, now) or 0 for algorithm, state in pairs]):
            now += wait
        return now

    def fits(self, now: int) -> bool:
        """Whether a request fits at *now*."""
        pairs = zip(self._algorithms, self._states, strict=True)
        return all(algorithm.wait(state, self._cost, now) == 0 for algorithm, state in pairs)

    def take(self, now: int, amount: int | None = None) -> None:
        """Charge a request, or *amount*, at *now*."""
        cost = self._cost if amount is None else amount
        for place, algorithm in enumerate(self._algorithms):
            self._states[place] = algorithm.charge(self._states[place], cost, now)


def excess(
    limits: Sequence[Limit], cost: int, sent: Iterable[int], answered: Iterable[int]
) -> Excess | None:
    """Where requests of *cost* units, all admitted, are more than *limits* allow; None: nowhere.

    *sent* and *answered* are as many moments, in nanoseconds, in any order. What is found is the
    whole, if the whole is too much, else the shortest stretch that ends where it first becomes so.
    """
    begins, ends = sorted(sent), sorted(answered)
    place = _first_late(limits, cost, begins, ends)
    if place is None:
        return None
    whole = most_between(limits, cost, begins[0], ends[-1], len(begins))
    if whole < len(begins):
        return Excess(len(begins), whole, begins[0], ends[-1])
    begins, ends = begins[: place + 1], ends[: place + 1]
    least, most = 0, place  # of the stretches that end here, the shortest that is too much
    while least < most:
        middle = (least + most + 1) // 2
        if _first_late(limits, cost, begins[middle:], ends[middle:]) is None:
            most = middle - 1
        else:
            least = middle
    count = place + 1 - least
    could = most_between(limits, cost, begins[least], ends[-1], count - 1)
    return Excess(count, could, begins[least], ends[-1])


def most_between(
    limits: Sequence[Limit], cost: int, began_ns: int, ended_ns: int, most: int
) -> int:
    """How many requests fit between two moments, both included; *most* if it is as many or more."""
    counters, now = _Counters(limits, cost, began_ns), began_ns
    for count in range(most):
        now = counters.first_fit(now)
        if now > ended_ns:
            return count
        counters.take(now)
    return most


def due_of(limits: Sequence[Limit], cost: int, asked: Iterable[int], used: int = 0) -> int:
    """How many of the requests that were decided at the moments *asked* fit, if *used* units were
    in use at the first of them and nobody else has asked."""
    moments = sorted(asked)
    if not moments:
        return 0
    counters, count = _Counters(limits, cost, moments[0]), 0
    if used:
        counters.take(moments[0], used)
    for now in moments:
        if counters.fits(now):
            counters.take(now)
            count += 1
    return count


def _first_late(
    limits: Sequence[Limit], cost: int, begins: Sequence[int], ends: Sequence[int]
) -> int | None:
    """The place of the first request that no longer fits before its answer; None: all fit."""
    if not begins:
        return None
    counters, now = _Counters(limits, cost, begins[0]), begins[0]
    for place, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        now = counters.first_fit(max(begin, now))
        if now > end:
            return place
        counters.take(now)
    return None
