"""The transport under the Redis store finds the primary that Sentinels name."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from tests.support.redis_transport import KINDS, drive, reason
from tests.support.servers import SentinelSetup, free_port, is_installed, release_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

PASSWORD = secrets.token_hex(8)


@pytest.fixture(scope="module")
def setup() -> Iterator[SentinelSetup]:
    with SentinelSetup(password=PASSWORD) as setup:
        yield setup


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_primary_is_asked(setup: SentinelSetup, kind: str) -> None:
    primary = setup.primary()
    primary.cli("flushall")
    with drive(kind, setup.url, timeout=5) as driver:
        assert driver.ask_all("key", "key") == [1, 2]
    assert primary.cli("get", "key") == "2"


def test_a_hung_or_dead_sentinel_is_passed_over(setup: SentinelSetup, kind: str) -> None:
    setup.primary().cli("flushall")
    port = free_port()
    url = setup.url.replace("@", f"@127.0.0.1:{port},")
    setup.sentinels[0].pause()
    try:
        with drive(kind, url, timeout=2) as driver:
            assert driver.ask("key") == 1
    finally:
        setup.sentinels[0].resume()
        release_port(port)
    setup.wait_until_ok()


def test_a_name_that_no_sentinel_knows_is_an_error(setup: SentinelSetup, kind: str) -> None:
    with drive(kind, setup.url.replace("mymaster", "nobody")) as driver:
        error = driver.ask("key")
    assert reason(error) == "unreachable"
    assert "'nobody'" in str(error)
    assert PASSWORD not in str(error)


def test_no_sentinel_at_all_is_an_error(kind: str) -> None:
    port = free_port()
    with drive(kind, f"redis+sentinel://127.0.0.1:{port}/mymaster") as driver:
        assert reason(driver.ask("key")) == "unreachable"
    release_port(port)


def test_roles_that_are_swapped_are_noticed(setup: SentinelSetup, kind: str) -> None:
    with drive(kind, setup.url, timeout=1) as driver:
        driver.ask("key")
        new = setup.switch_over()
        wait_until(lambda: isinstance(driver.ask("key"), int), "the new one is asked")
        before = int(new.cli("get", "key"))
        assert driver.ask_all("key", "key") == [before + 1, before + 2]


def test_a_dead_primary_has_a_successor(setup: SentinelSetup, kind: str) -> None:
    with drive(kind, setup.url, timeout=0.5) as driver:
        driver.ask("key")
        old = setup.primary()
        old.kill()
        assert reason(driver.ask("key")) in ("unreachable", "timeout")
        setup.promote()
        wait_until(lambda: isinstance(driver.ask("key"), int), "the new one is asked")
        old.restart()
        setup.wait_until_ok()
        assert isinstance(driver.ask("key"), int)


def test_a_hung_primary_has_a_successor(setup: SentinelSetup, kind: str) -> None:
    with drive(kind, setup.url, timeout=0.5) as driver:
        driver.ask("key")
        old = setup.primary()
        old.pause()
        try:
            assert reason(driver.ask("key")) == "timeout"
            setup.promote()
            wait_until(lambda: isinstance(driver.ask("key"), int), "the new one is asked")
        finally:
            old.resume()
        setup.wait_until_ok()
        assert isinstance(driver.ask("key"), int)
