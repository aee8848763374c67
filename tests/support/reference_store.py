"""A store that anyone can see through: a dict of entries, driven by the pure algorithms.

It never forgets an idle counter, never shares one and never takes a short cut. What the stores do
beyond that (sweeps, rotation, fast paths) must not show.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.algorithms import ConcurrencyAlgorithm, Outcome, algorithm_for, carry
from headgate.algorithms.reservations import (
    Expiry,
    Hold,
    Holds,
    correct,
    expire,
    outcome_beside,
    wait_beside,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.limits import Limit
    from headgate.stores.operations import Check


class Page(NamedTuple):
    """A counter: the limit it was last used under, its state and its reservations."""

    limit: Limit
    state: Any
    holds: Holds


class Book:
    """All counters, by group and key."""

    def __init__(self) -> None:
        self.pages: dict[tuple[str, str], Page] = {}

    def take(self, checks: Sequence[Check], now: int) -> tuple[Outcome, ...]:
        waits = [self._wait(check, now) for check in _added_up(checks)]
        if all(wait == 0 for wait in waits):
            for check in checks:
                self._charge(check, now)
        return self._outcomes(checks, waits, now)

    def look(self, checks: Sequence[Check], now: int) -> tuple[Outcome, ...]:
        return self._outcomes(checks, [self._wait(check, now) for check in checks], now)

    def hold(
        self, check: Check, name: str, ttl: int, now: int, *, charges_expired: bool
    ) -> tuple[Outcome, ...]:
        wait = self._wait(check, now)
        if wait == 0 and check.cost:
            page = self._open(check, now)
            expiry = Expiry.CHARGES if charges_expired else Expiry.VANISHES
            holds = {**page.holds, name: Hold(check.cost, now + ttl, ttl, expiry)}
            self._keep(check, page._replace(holds=holds))
        return self._outcomes([check], [wait], now)

    def settle(self, check: Check, name: str, now: int, *, charge_lapsed: bool) -> bool:
        page = self._open(check, now)
        holds = {other: hold for other, hold in page.holds.items() if other != name}
        self._keep(check, page._replace(holds=holds))
        held = page.holds.get(name)
        if held is not None and not held.is_open:
            state = correct(algorithm_for(check.limit), page.state, held, check.cost, now)
            self._keep(check, page._replace(holds=holds, state=state))
        elif held is not None or charge_lapsed:
            self._charge(check, now)
        return held is not None and held.is_open

    def charge(self, check: Check, now: int) -> tuple[Outcome, ...]:
        self._charge(check, now)
        return self._outcomes_of_one(check, now)

    def refund(self, check: Check, now: int) -> tuple[Outcome, ...]:
        page = self._open(check, now)
        if page.state is not None and check.cost:
            state = algorithm_for(check.limit).refund(page.state, check.cost, now)
            self._keep(check, page._replace(state=state))
        return self._outcomes_of_one(check, now)

    def reset(self, check: Check) -> None:
        self.pages.pop((check.group, check.key), None)

    def enter(self, check: Check, lease: str, now: int) -> tuple[Outcome, ...]:
        wait = self._wait(check, now)
        if wait == 0:
            self._change_slot(check, lease, now, ConcurrencyAlgorithm.enter)
        return self._outcomes([check], [wait], now)

    def renew(self, check: Check, lease: str, now: int) -> bool:
        had = self._has(check, lease, now)
        if had:
            self._change_slot(check, lease, now, ConcurrencyAlgorithm.enter)
        return had

    def leave(self, check: Check, lease: str, now: int) -> bool:
        had = self._has(check, lease, now)
        self._change_slot(check, lease, now, ConcurrencyAlgorithm.leave)
        return had

    def _has(self, check: Check, lease: str, now: int) -> bool:
        algorithm = algorithm_for(check.limit)
        assert isinstance(algorithm, ConcurrencyAlgorithm)
        return algorithm.holds(self._open(check, now).state, lease, now)

    def _change_slot(self, check: Check, lease: str, now: int, change: Any) -> None:
        page = self._open(check, now)
        state = change(algorithm_for(check.limit), page.state, lease, now)
        self._keep(check, page._replace(state=state))

    def _open(self, check: Check, now: int) -> Page:
        """The page of *check*, rewritten if its limit has changed."""
        page = self.pages.get((check.group, check.key), Page(check.limit, None, {}))
        state, holds = expire(algorithm_for(page.limit), page.state, page.holds, now)
        if page.limit != check.limit and state is not None:
            state = carry(algorithm_for(page.limit), state, algorithm_for(check.limit), now)
        page = Page(check.limit, state, holds)
        self._keep(check, page)
        return page

    def _keep(self, check: Check, page: Page) -> None:
        self.pages[check.group, check.key] = page

    def _charge(self, check: Check, now: int) -> None:
        page = self._open(check, now)
        if check.cost:
            state = algorithm_for(check.limit).charge(page.state, check.cost, now)
            self._keep(check, page._replace(state=state))

    def _wait(self, check: Check, now: int) -> int | None:
        page = self._open(check, now)
        if not check.cost:
            return 0
        return wait_beside(algorithm_for(check.limit), page.state, page.holds, check.cost, now)

    def _outcomes(
        self, checks: Sequence[Check], waits: Sequence[int | None], now: int
    ) -> tuple[Outcome, ...]:
        outcomes = []
        for check, wait in zip(checks, waits, strict=True):
            page = self._open(check, now)
            algorithm = algorithm_for(check.limit)
            outcomes.append(outcome_beside(algorithm, page.state, page.holds, wait, now))
        return tuple(outcomes)

    def _outcomes_of_one(self, check: Check, now: int) -> tuple[Outcome, ...]:
        page = self._open(check, now)
        algorithm = algorithm_for(check.limit)
        wait = wait_beside(algorithm, page.state, page.holds, 1, now)
        return (outcome_beside(algorithm, page.state, page.holds, wait, now),)


def _added_up(checks: Sequence[Check]) -> list[Check]:
    """*checks*, each with what those before it ask of the same counter; 0 stays nothing."""
    asked: dict[tuple[str, str], int] = {}
    added = []
    for check in checks:
        place = (check.group, check.key)
        asked[place] = asked.get(place, 0) + check.cost
        added.append(replace(check, cost=asked[place] if check.cost else 0))
    return added
