"""The gate of an app: its options, its store, its end."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import replace
from typing import Any

import pytest

from headgate.engine.request import Request
from headgate.errors import HeadgateError, OptionError
from headgate.integrations import Allowance, Gate, Passage
from headgate.integrations.allowance import LimitOptions
from headgate.integrations.gate import GateOptions, gate_of
from headgate.integrations.passing import enter, enter_async
from headgate.policy.loader import read_policy
from headgate.policy.model import Override
from headgate.stores import MemoryStore
from headgate.testing import ManualClock
from headgate.units import SECOND
from tests.support.async_stores import Waiting

POLICY = read_policy("version: 1\nrules:\n  - {id: rule, key_by: ip, limit: 5/hour}")
ASKED = Request(peer="1.2.3.4")


def test_blocking_and_async_parts_of_an_app_share_one_memory_store() -> None:
    gate = Gate(limits="4/hour", clock=ManualClock(100))

    async def ask() -> bool:
        return await enter_async(Passage(gate), gate, gate.entry(ASKED))

    granted = []
    for _ in range(3):
        granted.append(enter(Passage(gate), gate, gate.entry(ASKED)))
        granted.append(asyncio.run(ask()))

    assert granted == [True] * 4 + [False] * 2


@pytest.mark.parametrize("store", ["memory://", "MEMORY://?max_keys=9", MemoryStore()])
def test_a_memory_store_serves_both_kinds(store: Any) -> None:
    gate = Gate(limits="1/hour", store=store)

    assert gate.engine.store is gate.engine.store


class Closing(MemoryStore):
    closed = 0

    def close(self) -> None:
        self.closed += 1


class AsyncClosing(Waiting):
    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


def test_closing_gives_back_what_was_opened_once() -> None:
    blocking, looped = Closing(), AsyncClosing()
    one, other = Gate(store=blocking), Gate(store=looped)
    one.close()
    asyncio.run(other.aclose())
    assert (blocking.closed, looped.closed) == (0, 0)

    _ = one.engine, other.engine
    for _ in range(2):
        one.close()
        asyncio.run(other.aclose())

    assert (blocking.closed, looped.closed) == (1, 1)


def test_a_gate_that_was_closed_goes_on_with_what_it_had_counted() -> None:
    gate = Gate(limits="2/hour", clock=ManualClock(100))
    granted = []
    for _ in range(3):
        granted.append(enter(Passage(gate), gate, gate.entry(ASKED)))
        gate.close()

    assert granted == [True, True, False]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"policy": 5}, "policy is 5; expected a path or a Policy"),
        ({"policy": POLICY, "trusted_proxies": ["10.0.0.0/8"]}, "a policy says itself"),
        ({"trusted_proxies": ["10.0.0"]}, "trusted_proxies: '10.0.0' is no address"),
        ({"trusted_proxies": "10.0.0.0/8"}, "trusted_proxies is .* expected a list"),
        ({"exempt": "/health"}, "exempt is '/health'; expected a list"),
        ({"exempt_when": "/health"}, "exempt_when is '/health'; expected a function"),
        ({"key": "user"}, "key is 'user'; expected a function"),
        ({"charge_when": lambda _: True}, "charge_when is about limits"),
        ({"policy": POLICY, "cost": 5}, "cost is about limits"),
        ({"limits": "5/hour", "name": "a b"}, "name is 'a b'; expected"),
        ({"limits": "5/hour", "charge_when": 401}, "charge_when is 401; expected"),
    ],
)
def test_wrong_options_are_clear_errors(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Gate(**options)


def test_a_policy_file_that_is_not_there_is_a_clear_error() -> None:
    with pytest.raises(HeadgateError, match="nowhere"):
        Gate(policy="/nowhere.yaml")


def test_a_gate_and_options_for_one_are_a_clear_error() -> None:
    with pytest.raises(OptionError, match="'limits' is an option of the gate"):
        gate_of(Gate(), {"limits": "5/hour"})


@pytest.mark.parametrize("wrong", ["100/minute", 5, Gate])
def test_what_is_no_gate_is_a_clear_error(wrong: Any) -> None:
    with pytest.raises(OptionError, match="expected a Gate"):
        gate_of(wrong, {})


def test_a_gate_that_asks_nothing_lets_all_pass_and_says_nothing() -> None:
    gate = Gate()
    passage = Passage(gate)

    assert enter(passage, gate, gate.entry(ASKED))
    assert gate.headers(passage, 200) == []


def test_routes_make_a_difference_only_if_a_rule_counts_by_them() -> None:
    by_endpoint = read_policy("version: 1\nrules:\n  - {id: a, key_by: endpoint, limit: 5/hour}")

    assert not Gate(limits="5/hour").counts_endpoints
    assert not Gate(policy=POLICY).counts_endpoints
    assert Gate(policy=by_endpoint).counts_endpoints


def test_the_options_that_are_passed_on_are_those_that_are_taken() -> None:
    taken = inspect.signature(Gate).parameters
    assert set(GateOptions.__annotations__) == set(taken)

    of_an_allowance = set(inspect.signature(Allowance).parameters) - {"limits"}
    assert set(LimitOptions.__annotations__) == of_an_allowance


def test_a_blocked_caller_is_refused_and_charged_nothing_by_anybody() -> None:
    clock = ManualClock(100)
    one = Override("rule", "ip=1.2.3.4", 160 * SECOND, block=True)
    gate = Gate(policy=replace(POLICY, overrides=(one,)), limits="1/hour", clock=clock)

    async def ask() -> Passage:
        passage = Passage(gate)
        assert not await enter_async(passage, gate, gate.entry(ASKED))
        return passage

    blocking = Passage(gate)
    assert not enter(blocking, gate, gate.entry(ASKED))
    for passage in (blocking, asyncio.run(ask())):
        assert b'"error": "blocked"' in gate.refusal(passage, None).body

    clock.advance(60)
    assert enter(Passage(gate), gate, gate.entry(ASKED))
