"""Which counters of rules are found in a store of this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headgate.control import live_counters
from headgate.control.live_counters import MemoryCounters
from headgate.engine.request import Request
from headgate.policy.loader import read_policy
from headgate.rule_engine import AsyncRuleEngine
from headgate.stores import MemoryStore
from headgate.testing import ManualClock

if TYPE_CHECKING:
    import pytest

    from headgate.control.live_counters import FoundCounters

POLICY = """
version: 1
rules:
  - {id: user, key_by: user_id, limit: 10/h; 100/d fixed_window}
  - {id: user-2, key_by: user_id, limit: 1000/h sliding_window_log}
  - {id: slots, key_by: user_id, limits: [{algorithm: concurrency, limit: 20, ttl: 60}]}
"""


class Trial:
    """An engine on a store in memory, and somebody who looks through it."""

    def __init__(self, namespace: str = "headgate") -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.engine = AsyncRuleEngine(read_policy(POLICY), store=self.store, namespace=namespace)
        self.live = MemoryCounters(self.store, namespace=namespace)

    def hit(self, user: str, times: int = 1) -> None:
        async def hits() -> None:
            for _ in range(times):
                await self.engine.check(Request(headers=(("x-user-id", user),)))

        asyncio.run(hits())

    def hold(self, user: str, amount: int) -> None:
        request = Request(headers=(("x-user-id", user),))
        asyncio.run(self.engine.reserve(request, cost={"user": amount}, ttl=60))

    def find(self, *rules: str, most: int = 100, pattern: str | None = None) -> FoundCounters:
        return asyncio.run(self.live.find(rules, most=most, pattern=pattern))


def figures(look: FoundCounters) -> set[tuple[str, str, int, int]]:
    return {(one.rule, one.key, one.place, one.used) for one in look.counters}


def test_the_counters_of_a_rule_are_found_and_no_others() -> None:
    trial = Trial()
    trial.hit("ann", 3)
    trial.hit("bob")
    look = trial.find("user")
    assert figures(look) == {
        ("user", "user_id=ann", 0, 3),
        ("user", "user_id=ann", 1, 3),
        ("user", "user_id=bob", 0, 1),
        ("user", "user_id=bob", 1, 1),
    }
    assert not look.has_more
    assert figures(trial.find("slots", pattern="*ann")) == {("slots", "user_id=ann", 0, 3)}


def test_no_more_are_told_than_wanted() -> None:
    trial = Trial()
    for number in range(5):
        trial.hit(f"user-{number}")
    look = trial.find("user-2", most=3)
    assert (len(look.counters), look.has_more) == (3, True)
    look = trial.find("user-2", most=5)
    assert (len(look.counters), look.has_more) == (5, False)


def test_no_more_are_looked_at_than_can_be_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_counters, "MOST_SEARCHED", 2)
    trial = Trial()
    for number in range(3):
        trial.hit(f"user-{number}")
    look = trial.find("user-2")
    assert (len(look.counters), look.has_more) == (2, True)


def test_what_is_held_counts_and_what_is_over_does_not() -> None:
    trial = Trial()
    trial.hold("ann", 4)
    assert ("user", "user_id=ann", 0, 4) in figures(trial.find("user"))
    trial.clock.advance(86_400)
    assert trial.find("user").counters == ()


def test_counters_of_another_name_in_the_same_store_are_left_out() -> None:
    trial = Trial(namespace="here")
    trial.hit("ann")
    elsewhere = MemoryCounters(trial.store, namespace="elsewhere")
    assert asyncio.run(elsewhere.find(["user"], most=9)).counters == ()


def test_looking_changes_nothing() -> None:
    trial = Trial()
    trial.hit("ann", 9)
    for _ in range(3):
        assert ("user", "user_id=ann", 0, 9) in figures(trial.find("user"))
    trial.hit("ann", 5)
    assert ("user", "user_id=ann", 0, 10) in figures(trial.find("user"))
