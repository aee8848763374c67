"""The breaker under random histories: whatever happens, it keeps its promises."""

from __future__ import annotations

import random
from typing import get_args

import pytest

from headgate.stores.layers.circuit_breaker.breaker import BreakerOptions, State
from headgate.units import MILLISECOND, SECOND
from tests.support.circuit_breaker import OPTIONS, TIMEOUT, Tried


@pytest.mark.parametrize("seed", range(150))
def test_a_random_history_keeps_the_promises(seed: int) -> None:
    """Calls come, last, succeed, fail, are given up or never come back, in any order."""
    chance = random.Random(f"breaker {seed}")
    options = BreakerOptions(
        failures=chance.randint(1, 5),
        probe_ns=chance.choice([SECOND, 10 * SECOND]),
        ramp_ns=chance.choice([0, SECOND, 3 * SECOND]),
        least_calls=chance.randint(1, 40),
    )
    tried = Tried(options)
    breaker = tried.breaker
    in_flight: list[tuple[int, int, State]] = []
    badness = 0.0
    for _ in range(600):
        if chance.random() < 0.02:
            badness = chance.choice([0.0, 0.3, 1.0])
        tried.wait(round(chance.expovariate(1) * chance.choice([1, 50, 500]) * MILLISECOND))
        before = breaker.state
        ticket = breaker.request(tried.now_ns, chance.random())
        if ticket is not None:
            assert before != "open" or breaker.state == "half_open"
            in_flight.append((ticket, tried.now_ns, breaker.state))
        probes = [
            at_ns
            for given, at_ns, state in in_flight
            if state == "half_open" and breaker.state == "half_open"
            if tried.now_ns < at_ns + options.probe_ns and given >= breaker.mark
        ]
        assert len(probes) <= 1, f"two probes at once; seed {seed}"
        while in_flight and chance.random() < 0.6:
            given, _, _ = in_flight.pop(chance.randrange(len(in_flight)))
            match chance.choices(["fail", "succeed", "give up", "lose"], [badness, 1, 0.1, 0.02]):
                case ["fail"]:
                    breaker.failed(given, TIMEOUT, tried.now_ns, chance.random())
                case ["succeed"]:
                    breaker.succeeded(given, tried.now_ns, chance.random())
                case ["give up"]:
                    breaker.abandoned(given, tried.now_ns)
        assert breaker.failures <= options.failures, f"seed {seed}"
        assert breaker.is_closed == (breaker.state == "closed") == (breaker.since_ns is None)
        assert 0 <= breaker.wait_ns(tried.now_ns) <= max(options.longest_pause_ns, options.probe_ns)
    for change, following in zip(tried.changes, tried.changes[1:], strict=False):
        assert change.after == following.before != following.after, f"seed {seed}"
    assert {change.after for change in tried.changes} <= set(get_args(State))


@pytest.mark.parametrize("seed", range(100))
def test_a_store_that_is_back_is_in_full_use_soon(seed: int) -> None:
    """Whatever has happened, calls that succeed close it, within a pause, a probe and a ramp."""
    chance = random.Random(f"back {seed}")
    tried = Tried()
    for _ in range(200):
        tried.wait(chance.randrange(300 * MILLISECOND))
        ticket = tried.request(chance.random())
        if ticket is not None and chance.random() < 0.7:
            tried.breaker.failed(ticket, TIMEOUT, tried.now_ns, chance.random())
    until_ns = tried.now_ns + OPTIONS.probe_ns + OPTIONS.longest_pause_ns + 2 * OPTIONS.ramp_ns
    while not tried.breaker.is_closed:
        assert tried.now_ns < until_ns, f"seed {seed}"
        tried.wait(10 * MILLISECOND)
        ticket = tried.request(chance.random())
        if ticket is not None:
            tried.breaker.succeeded(ticket, tried.now_ns, chance.random())
