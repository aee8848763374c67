"""The bounds of the plan cache: bytes, long keys, parts without a hash."""

from __future__ import annotations

import gc
import tracemalloc
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from headgate.engine.request import Request
from headgate.engine.use_cases import Engine
from headgate.integrations.asgi import AsgiRequest
from headgate.limits import TokenBucket
from headgate.policy.compiled import CompiledPolicy
from headgate.policy.limit_adjustment import Scale
from headgate.policy.loader import read_policy
from headgate.policy.model import Adaptive, Match, Policy, Rule
from headgate.policy.plan_cache import PlanCache, headers_of_interest

if TYPE_CHECKING:
    from headgate.engine.plan import Plan

MANY = 50
WIDE = "\N{GRINNING FACE}"
UNPRINTABLE = "\N{LANGUAGE TAG}"


def _compiled(rules: int = 1) -> CompiledPolicy:
    each = [f"  - {{id: r{n}, key_by: 'header:x-own', limit: 1000/s}}\n" for n in range(rules)]
    return CompiledPolicy(read_policy("version: 1\nrules:\n" + "".join(each)), salt=b"salt")


def _request(value: str) -> Request:
    return Request("GET", "/x", headers=(("x-own", value),), peer="203.0.113.7")


def _plan(n: int = 0) -> Plan:
    return _compiled().plan(_request(str(n)))


def test_the_cache_is_bounded_in_bytes_and_drops_the_oldest() -> None:
    cache = PlanCache(0, max_bytes=20_000)
    for n in range(100):
        cache.keep((n,), _plan(n))
        assert cache.size <= 20_000
        assert cache.get((n,)) is not None
    assert 2 <= len(cache) < 20
    assert cache.get((0,)) is None


def test_a_plan_larger_than_the_cache_is_not_kept() -> None:
    cache = PlanCache(0, max_bytes=100)
    cache.keep((1,), _plan())
    assert len(cache) == cache.size == 0


def test_a_plan_that_is_replaced_counts_once() -> None:
    cache = PlanCache(0)
    for _ in range(3):
        cache.keep(("x",), _plan())
    size = cache.size
    cache.keep(("y",), _plan())
    assert (len(cache), cache.size) == (2, 2 * size)


@pytest.mark.parametrize("key", [("x" * 5000,), (("n", b"x" * 5000),)], ids=["flat", "nested"])
def test_a_long_key_is_not_kept(key: tuple[str | tuple[str, bytes]]) -> None:
    cache = PlanCache(0)
    cache.keep(key, _plan())
    assert len(cache) == 0


def test_a_long_header_of_interest_is_planned_each_time() -> None:
    compiled, request = _compiled(), _request("x" * 5000)
    assert compiled.plan(request) is not compiled.plan(request)
    noisy = Request("GET", "/x", headers=(("x-own", "1"), ("x-noise", "x" * 5000)))
    assert compiled.plan(noisy) is compiled.plan(noisy)


@pytest.mark.parametrize("rules", [1, 5])
@pytest.mark.parametrize(
    "value",
    ["", "x" * 300, WIDE * 80, WIDE + "x" * 900, UNPRINTABLE + "x" * 900],
    ids=["short", "long", "wide", "one wide", "one unprintable"],
)
def test_plans_take_no_more_memory_than_estimated(rules: int, value: str) -> None:
    compiled, engine = _compiled(rules), Engine("memory://")
    plans = [compiled.plan(_request(f"{n}-{value}")) for n in range(MANY)]
    for plan in plans:
        engine.decide_now(plan)  # the store has its counters now
    cache = PlanCache(0)
    gc.collect()
    tracemalloc.start()
    try:
        for n in range(MANY):
            request = _request(f"{n}-{value}")
            plan = _fresh(compiled, request)
            engine.decide_now(plan)  # which prepares the plan
            cache.keep(_parts(compiled, request), plan)
            del plan, request
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        estimated = cache.size
        assert len(cache) == MANY
        del cache
        gc.collect()
        taken = held - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0 < taken <= estimated


def _fresh(compiled: CompiledPolicy, request: Request) -> Plan:
    """A plan of its own, as no equal request was planned before."""
    return CompiledPolicy(compiled.policy, salt=b"salt").plan(request)


def _parts(compiled: CompiledPolicy, request: Request) -> tuple[object, ...]:
    names = headers_of_interest(compiled.policy)
    lines = tuple((name, value) for name, value in request.headers if name in names)
    return request.method, request.path, request.peer, lines


def test_a_part_without_a_hash_is_planned_each_time() -> None:
    compiled = _compiled()
    scope = {"type": "http", "path": "/b", "headers": [(b"x-own", bytearray(b"1"))]}
    assert compiled.plan(AsgiRequest(scope)) is not compiled.plan(AsgiRequest(scope))


def test_a_header_beyond_ascii_turns_the_cache_off() -> None:
    rule = Rule("a", Match(), ("header:x-\xc9",), {None: (TokenBucket(1, 1),)})
    compiled = CompiledPolicy(Policy((rule,)))
    assert compiled.plan(Request()) is not compiled.plan(Request())


def test_only_a_changed_factor_is_a_new_version() -> None:
    scale = Scale()
    scale.factor = scale.factor
    assert scale.version == 0
    scale.factor /= 2
    scale.factor *= 2
    assert scale.version == 2


def test_a_cached_plan_is_not_used_under_another_factor() -> None:
    scale = Scale()
    rule = Rule(
        "a",
        Match(),
        ("global",),
        {None: (TokenBucket(100, 10),)},
        adaptive=Adaptive(Fraction(1, 10)),
    )
    compiled = CompiledPolicy(Policy((rule,)), scale=scale)
    request = _request("x")
    full = compiled.plan(request)
    assert compiled.plan(request) is full
    scale.factor /= 2
    assert compiled.plan(request).rules[0].limits[0].quota == 50
