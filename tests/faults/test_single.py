"""One server and whatever may happen to it, and to the way to it."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from headgate import RateLimiter
from tests.support.faults.injections import CONFIG, FAULTS, Fault, Scene, crashed, wrong_password
from tests.support.faults.invariants import ordeal
from tests.support.faults.proxy import FaultyProxy
from tests.support.faults.subjects import CAPACITY, DECIDING, LIMIT
from tests.support.servers import RedisServer, User, is_installed, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

UNDONE = ("no memory", "a replica of nobody", "an endless script", "a right taken away")
"""The store says that it has not done what it was asked."""
UNKNOWN = (
    "swallowed replies",
    "truncated replies",
    "truncated replies that hang",
    "a partition",
    "connections refused",
)
"""Nobody can tell whether it has."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(config=CONFIG) as server:
        yield server


@pytest.fixture
def scene(server: RedisServer) -> Iterator[Scene]:
    with FaultyProxy(server.port) as proxy:
        yield Scene(server, proxy)


@pytest.mark.parametrize("name", FAULTS)
def test_the_invariants_hold_in(name: str, scene: Scene) -> None:
    suffer(scene, FAULTS[name])


def test_the_invariants_hold_in_a_crash_of_a_server_that_keeps_its_data() -> None:
    config = ("appendonly yes", "appendfsync always")
    with RedisServer(config=config) as server, FaultyProxy(server.port) as proxy:
        suffer(Scene(server, proxy), Fault(crashed))


def test_the_invariants_hold_in_a_change_of_the_password() -> None:
    user = User("limiter", secrets.token_hex(8))
    with RedisServer(user=user) as server, FaultyProxy(server.port) as proxy:
        suffer(Scene(server, proxy), Fault(wrong_password))


def suffer(scene: Scene, fault: Fault) -> None:
    with ordeal(scene.url, is_patient=fault.effect == "none") as one:
        one.suffer(
            contextmanager(fault.inflict)(scene),
            scene.server.url,
            effect=fault.effect,
            keeps_data=fault.keeps_data,
        )


@pytest.mark.parametrize("name", [*UNDONE, *UNKNOWN])
def test_what_was_admitted_meanwhile_is_charged_afterwards_and_once(
    name: str, scene: Scene
) -> None:
    fault = contextmanager(FAULTS[name].inflict)(scene)
    with ordeal(scene.url, DECIDING, is_patient=name in UNDONE) as one:
        one.be_merged(fault, scene.server.url, is_exact=name in UNDONE)


def test_a_limiter_that_was_told_nothing_but_a_url_comes_through_a_partition(scene: Scene) -> None:
    with RateLimiter(LIMIT, store=scene.url, name="api", namespace="default") as limiter:
        wait_until(lambda: limiter.hit("before").source == "store", "the store decides")
        scene.proxy.partition()
        decisions = [limiter.hit("during") for _ in range(CAPACITY + 1)]
        assert [decision.source for decision in decisions] == ["fail_open"] * CAPACITY + [
            "fallback"
        ]
        scene.proxy.heal()
        wait_until(lambda: limiter.hit("after").source == "store", "the store decides again")
