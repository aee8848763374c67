"""The transport under the Redis store, against one real server that works."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.support.redis_transport import KINDS, Driver, Script, drive, is_reply_error, reason
from tests.support.servers import Certificates, RedisServer, User, is_installed, knows_tls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

PASSWORD = f"se/cr@t:{secrets.token_hex(8)}"
QUOTED = quote(PASSWORD, safe="")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(unix=True) as server:
        yield server


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def driver(server: RedisServer, kind: str) -> Iterator[Driver]:
    server.cli("flushall")
    with drive(kind, server.url) as driver:
        yield driver


class TestAsking:
    def test_requests_are_answered_in_their_order(self, driver: Driver) -> None:
        assert driver.ask_all(*["key"] * 50) == list(range(1, 51))
        assert driver.ask("key") == 51

    def test_a_script_that_the_server_forgot_is_sent_whole_and_runs_once(
        self, driver: Driver, server: RedisServer
    ) -> None:
        assert driver.ask("key") == 1
        server.cli("script", "flush")
        assert driver.ask_all(*["key"] * 5) == [2, 3, 4, 5, 6]
        assert server.cli("get", "key") == "6"

    def test_an_error_fails_its_request_and_no_other(self, driver: Driver) -> None:
        good, bad = Script("key"), Script("key", script=b"return redis.call('LPUSH', KEYS[1], 1)")
        last = Script("key")
        driver.perform([good, bad, last])
        assert (good.outcome, last.outcome) == (1, 2)
        assert reason(bad.outcome) == "refused"
        assert "WRONGTYPE" in str(bad.outcome)

    def test_an_error_inside_a_reply_keeps_the_words_of_the_server(self, driver: Driver) -> None:
        script = b"redis.call('SET', KEYS[1], 1) return {7, redis.pcall('LPUSH', KEYS[1], 1)}"
        number, error = driver.ask("key", script=script)
        assert number == 7
        assert is_reply_error(error)
        assert str(error).startswith("WRONGTYPE ")

    def test_bytes_integers_and_nothing_come_as_they_are(self, driver: Driver) -> None:
        assert driver.ask("key", script=b"return {1, 'two', false}") == [1, b"two", None]

    def test_large_requests_and_replies_pass(self, driver: Driver) -> None:
        large = b"return string.rep('x', 3000000) --" + b"y" * 1_000_000
        assert driver.ask("key", script=large) == b"x" * 3_000_000


class TestGettingIn:
    def test_by_a_unix_socket(self, server: RedisServer, kind: str) -> None:
        server.cli("flushall")
        with drive(kind, server.unix_url) as driver:
            assert driver.ask_all("key", "key") == [1, 2]

    def test_to_the_database_that_the_url_names_under_the_name_headgate(
        self, server: RedisServer, kind: str
    ) -> None:
        server.cli("flushall")
        with drive(kind, server.bare_url.removesuffix("/0") + "/3") as driver:
            assert driver.ask("key") == 1
            assert server.cli("-n", "3", "get", "key") == "1"
            assert " name=headgate " in server.cli("client", "list")

    def test_a_database_that_is_not_there_is_an_error(self, server: RedisServer, kind: str) -> None:
        with drive(kind, server.bare_url.removesuffix("/0") + "/99") as driver:
            assert reason(driver.ask("key")) == "refused"

    def test_with_a_user_and_a_password_of_any_characters(self, kind: str) -> None:
        user = User("limiter", PASSWORD, "~* +eval +evalsha +incr")
        with RedisServer(user=user, unix=True) as server:
            for url in (server.url, server.unix_url):
                with drive(kind, url.replace(PASSWORD, QUOTED)) as driver:
                    assert isinstance(driver.ask("key"), int)  # not even SETNAME is allowed
                    denied = driver.ask("key", script=b"return redis.call('GET', KEYS[1])")
                    assert reason(denied) == "denied"

    def test_a_wrong_password_is_said_and_never_shown(self, kind: str) -> None:
        with RedisServer(password=PASSWORD) as server:
            for wrong in (f":{QUOTED}x@", ""):
                url = f"redis://{wrong}{server.address}"
                with drive(kind, url) as driver:
                    error = driver.ask("key")
                assert reason(error) == "denied"
                assert server.address in str(error)
                assert PASSWORD not in str(error)

    def test_a_password_that_nobody_asked_for_is_an_error(
        self, server: RedisServer, kind: str
    ) -> None:
        with drive(kind, f"redis://:{QUOTED}@{server.address}") as driver:
            error = driver.ask("key")
        assert reason(error) == "denied"
        assert PASSWORD not in str(error)


@pytest.fixture(scope="class")
def tls_server() -> Iterator[RedisServer]:
    if not knows_tls():
        pytest.skip("the server binary was built without TLS")
    with RedisServer(tls=True, client_certificates=True) as server:
        yield server


class TestTLS:
    def files(self, own: Certificates, shown: Certificates) -> dict[str, object]:
        return {
            "ssl_ca_certs": own.ca,
            "ssl_certfile": shown.client,
            "ssl_keyfile": shown.client_key,
        }

    def test_with_client_certificates(self, tls_server: RedisServer, kind: str) -> None:
        tls_server.cli("flushall")
        files = self.files(tls_server.certificates, tls_server.certificates)
        with drive(kind, tls_server.url, **files) as driver:
            assert driver.ask_all("key", "key") == [1, 2]
            time.sleep(0.1)  # long enough to be looked at before it is used again
            assert driver.ask("key") == 3

    def test_a_server_or_a_client_that_nobody_knows_is_turned_away(
        self, tls_server: RedisServer, kind: str, tmp_path: Path
    ) -> None:
        own, other = tls_server.certificates, Certificates(tmp_path)
        for files in (self.files(other, own), self.files(own, other)):
            with drive(kind, tls_server.url, **files) as driver:
                assert reason(driver.ask("key")) == "unreachable"

    def test_a_missing_file_is_an_error_of_the_store(
        self, tls_server: RedisServer, kind: str
    ) -> None:
        with drive(kind, tls_server.url, ssl_ca_certs="/nowhere.pem") as driver:
            assert reason(driver.ask("key")) == "unreachable"

    def test_a_hung_tls_server_fails_within_the_deadline(
        self, tls_server: RedisServer, kind: str
    ) -> None:
        files = self.files(tls_server.certificates, tls_server.certificates)
        with drive(kind, tls_server.url, timeout=0.2, **files) as driver:
            driver.ask("key")
            tls_server.pause()
            try:
                assert reason(driver.ask("key")) == "timeout"
                assert reason(driver.ask("key")) == "timeout"  # while connecting
            finally:
                tls_server.resume()
