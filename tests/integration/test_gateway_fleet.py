"""The proof: a limit of 50 a second is that across two gateways, in each way to decide."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import httpx
import pytest

from tests.support.counting_upstream import Upstream, counting_upstream, most_within
from tests.support.gateway_process import Gateway, gateway
from tests.support.servers import RedisServer, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RATE = 50
"""Requests a second, and the burst."""

SECONDS = 1

_CONNECTIONS = 8
"""Requests in flight at each gateway."""

_RULES = """\
version: 1
rules:
  - id: per-key
    match: {{endpoint: /limited}}
    key_by: api_key
    limit: {rate}/s
    decide: {decide}
  - id: strict
    match: {{endpoint: /strict}}
    key_by: api_key
    limit: 100000/s
    on_store_failure: fail_closed
"""


class Fleet(NamedTuple):
    """Two gateways before one upstream, with one Redis."""

    gateways: list[Gateway]
    upstream: Upstream
    redis: RedisServer
    rules: Path

    def decides(self, decide: str, rate: int = RATE) -> None:
        """Change the rules of all, and wait until they are in force."""
        self.rules.write_text(_RULES.format(decide=decide, rate=rate))
        told = str(rate) if decide == "exact" else None
        _wait_for(self, lambda one: _quota(one) == told, f"all decide {decide}, {rate}/s")


@contextmanager
def _fleet(directory: Path, decide: str) -> Iterator[Fleet]:
    rules = directory / "rules.yaml"
    rules.write_text(_RULES.format(decide=decide, rate=RATE))
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        upstream = stack.enter_context(counting_upstream())
        flags = ("--store", redis.url, "--gateway-count", "2", "--rules", str(rules))
        gateways = []
        for name in ("one", "two"):
            place = directory / name
            place.mkdir()
            started = gateway(place, *flags, rules=None, upstream=upstream.url, is_awaited=False)
            gateways.append(stack.enter_context(started))
        fleet = Fleet(gateways, upstream, redis, rules)
        _wait_for(fleet, Gateway.is_up, "both gateways are up")
        yield fleet


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """For all tests that need not see gateways start."""
    with _fleet(tmp_path_factory.mktemp("fleet"), "exact") as running:
        yield running


def _drive(fleet: Fleet, key: str, *, seconds: int = SECONDS) -> int:
    """Ask both gateways as fast as they answer; how many answers there were in all."""
    answers: list[int] = []

    def ask(url: str) -> None:
        load = ["-t1", f"-c{_CONNECTIONS}", f"-d{seconds}s"]
        call = ["wrk", *load, "-H", f"x-api-key: {key}", f"{url}/limited"]
        done = subprocess.run(call, capture_output=True, text=True, check=True)  # noqa: S603
        found = re.search(r"(\d+) requests in", done.stdout)
        assert found is not None, done.stdout
        answers.append(int(found[1]))

    threads = [threading.Thread(target=ask, args=(one.url,)) for one in fleet.gateways]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(answers)


def _assert_within(times: list[float], *, burst: int, rate: int = RATE) -> None:
    """No interval has more than the bound, and what was in flight if the upstream was slow."""
    lasted = times[-1] - times[0]
    for seconds in (0.5, 1.0, 2.0, lasted):
        most = burst + rate * seconds + 2 * _CONNECTIONS
        assert most_within(seconds, times) <= most, (seconds, most)


def _wait_until_used(fleet: Fleet, *, share: float, seconds: int = SECONDS) -> None:
    """Wait until callers use *share* of the limit; most requests are denied, and all are bounded.

    A busy machine may need several attempts.
    """

    def is_used() -> bool:
        fleet.upstream.forget()
        asked = _drive(fleet, "ada", seconds=seconds)
        times = fleet.upstream.seen("/limited")
        _assert_within(times, burst=RATE)
        return asked > 3 * len(times) and len(times) >= RATE * seconds * share

    wait_until(is_used, f"{share:.0%} of the limit is used")


def test_exact_is_exact(fleet: Fleet) -> None:
    fleet.decides("exact")
    _wait_until_used(fleet, share=0.9)


def test_rules_are_changed_under_way(fleet: Fleet) -> None:
    fleet.decides("exact")
    _drive(fleet, "eve")
    fleet.decides("exact", rate=20)
    fleet.upstream.forget()
    _drive(fleet, "dan")  # eve has debts: her burst was larger than what it is now
    _assert_within(fleet.upstream.seen("/limited"), burst=20, rate=20)


def test_each_part_is_killed_in_turn(fleet: Fleet) -> None:
    fleet.decides("exact")
    one, two = fleet.gateways
    assert _statuses(one) == _statuses(two) == (200, 200)

    os.kill(one.envoy_pid, signal.SIGKILL)
    assert _statuses(two) == (200, 200)
    wait_until(lambda: _answers(one) == (200, 200), "Envoy is back", within=30.0, every=0.2)

    os.kill(one.worker_pid, signal.SIGKILL)
    denied = one.get("/strict")  # at once: the worker is started again
    assert denied.status_code == 503  # this rule fails closed, the other open
    assert denied.json()["error"] != "rate_limit_exceeded"
    assert _statuses(one)[0] == 200
    assert _statuses(two) == (200, 200)
    wait_until(lambda: _answers(one) == (200, 200), "the service is back", within=30.0, every=0.2)

    fleet.redis.kill()
    for each in fleet.gateways:
        assert _statuses(each) == (200, 503)
    fleet.redis.start()
    _wait_for(fleet, lambda each: _answers(each) == (200, 200), "Redis is back")
    # Until then a growing share of the calls is made, and the rule fails open for the others.
    _wait_for(fleet, _asks_about_all, "all calls are made to it again")

    fleet.upstream.forget()
    _drive(fleet, "joe")
    _assert_within(fleet.upstream.seen("/limited"), burst=RATE)


def test_local_limits_add_up_to_the_whole(fleet: Fleet) -> None:
    """Each gateway enforces its half, and both together no more than all."""
    fleet.decides("exact")
    fleet.decides("local")  # another way to decide, while the gateways run
    _wait_until_used(fleet, share=0.8)


def test_quotas_add_up_to_the_whole_once_they_are_assigned(tmp_path: Path) -> None:
    """Before its first assignment each gateway has its fallback: the whole burst, once."""
    with _fleet(tmp_path, "quota") as fleet:
        _drive(fleet, "ada", seconds=2)
        first = fleet.upstream.seen("/limited")
        lasted = first[-1] - first[0] + 0.5
        assert len(first) <= (RATE + RATE * lasted + _CONNECTIONS) * 2
        # A gateway may report late and keep a small share until then.
        _wait_until_used(fleet, share=0.8, seconds=2)


def _wait_for(fleet: Fleet, holds: Callable[[Gateway], bool], what: str) -> None:
    """Wait until it *holds* for all gateways."""
    wait_until(lambda: all(map(holds, fleet.gateways)), what, within=30.0, every=0.2)


def _quota(one: Gateway) -> str | None:
    """The limit that a response tells of; None if it tells nothing."""
    told: str | None = one.get("/limited", key="bob").headers.get("x-ratelimit-limit")
    return told


def _statuses(one: Gateway) -> tuple[int, int]:
    """Of a request under the rule that fails open, and of one under the other."""
    return one.get("/limited", key="bob").status_code, one.get("/strict", key="bob").status_code


def _asks_about_all(one: Gateway) -> bool:
    """Whether its breaker is closed; each look is a call, by which it finds out."""
    states = re.findall(r"^headgate_store_breaker_state\S* (\d)", _metrics(one), re.MULTILINE)
    _statuses(one)
    return states == ["0"]


def _metrics(one: Gateway) -> str:
    return httpx.get(f"{one.service_url}/metrics").text


def _answers(one: Gateway) -> tuple[int, int] | None:
    """The same; None if nobody answers at all."""
    try:
        return _statuses(one)
    except httpx.TransportError:
        return None
