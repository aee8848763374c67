"""The servers that other tests rely on start, fail and go away as they are told to."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from tests.support.servers import (
    Certificates,
    ClusterSetup,
    RedisServer,
    ServerError,
    SilentProxy,
    User,
    free_port,
    is_installed,
    knows_tls,
    release_port,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

PASSWORD = secrets.token_hex(8)
ONCE = Retry(NoBackoff(), 0)


def client(url: str, **options: object) -> closing[redis.Redis]:
    """A client that asks once and waits for a quarter of a second; Headgate's options go."""
    options = {"socket_timeout": 0.25, "retry": ONCE, **options}
    return closing(redis.Redis.from_url(url.partition("?")[0], **options))


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterSetup]:
    with ClusterSetup() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def _built_with_tls() -> None:
    if not knows_tls():
        pytest.skip("the server binary was built without TLS")


def test_a_free_port_is_given_out_once_and_its_cluster_bus_is_free_too() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50
    for port in ports:
        for each in (port, port + 10_000):
            socket.create_server(("127.0.0.1", each)).close()
        release_port(port)


class TestOneServer:
    def test_it_answers_on_its_url_and_is_gone_after_its_block(self) -> None:
        with RedisServer() as server, client(server.url) as redis_:
            assert redis_.ping()
            directory, pid = server.directory, server.pid
        assert not directory.exists()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    def test_a_restart_keeps_the_port_and_loses_the_data(self) -> None:
        with RedisServer() as server:
            server.cli("set", "key", "value")
            sha, url = server.cli("script", "load", "return 1"), server.url
            server.kill()
            with client(url) as redis_, pytest.raises(redis.ConnectionError):
                redis_.ping()
            server.restart()
            with client(url) as redis_:
                assert redis_.get("key") is None
            with pytest.raises(ServerError, match="NOSCRIPT"):
                server.cli("evalsha", sha, "0")
            server.stop()
            assert not server.is_running
            server.restart()
            assert server.cli("ping") == "PONG"

    def test_a_paused_server_hangs_until_it_is_resumed(self, server: RedisServer) -> None:
        with client(server.url) as redis_:
            redis_.ping()
            server.pause()
            with pytest.raises(redis.TimeoutError):
                redis_.ping()
            server.resume()
            assert redis_.ping()

    def test_a_password_is_asked_for_on_its_port_and_on_its_unix_socket(self) -> None:
        with RedisServer(password=PASSWORD, unix=True) as server:
            for url in (server.url, server.unix_url):
                with client(url) as redis_:
                    assert redis_.ping()
                stranger = client(url.replace(f":{PASSWORD}@", ""))
                with stranger as redis_, pytest.raises(redis.AuthenticationError):
                    redis_.ping()

    def test_a_user_may_do_what_its_rules_say(self) -> None:
        user = User("limiter", PASSWORD, "~headgate:* +@all -@dangerous")
        with RedisServer(user=user) as server, client(server.url) as redis_:
            assert redis_.set("headgate:key", "value")
            with pytest.raises(redis.exceptions.NoPermissionError):
                redis_.set("other", "value")
            assert server.cli("set", "other", "value") == "OK"

    def test_extra_configuration_is_obeyed(self) -> None:
        full = RedisServer(config=["maxmemory 1", "maxmemory-policy noeviction"])
        with full as server, pytest.raises(ServerError, match="OOM"):
            server.cli("set", "key", "value")

    def test_a_server_that_does_not_start_shows_its_log(self) -> None:
        with pytest.raises(ServerError, match="no-such-directive"):
            RedisServer(config=["no-such-directive yes"]).start()

    def test_it_dies_with_the_process_that_started_it(self) -> None:
        program = (
            "import time; from tests.support.servers import RedisServer; server = RedisServer();"
            "server.start(); print(server.pid, server.directory, flush=True); time.sleep(60)"
        )
        root = Path(__file__).parents[2]
        with subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, text=True
        ) as starter:
            assert starter.stdout is not None
            pid, directory = starter.stdout.readline().split()
            starter.send_signal(signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the server is gone")
        shutil.rmtree(directory)


@pytest.mark.usefixtures("_built_with_tls")
class TestTLS:
    def test_the_server_is_trusted_by_those_who_know_its_authority(self, tmp_path: Path) -> None:
        with RedisServer(tls=True) as server:
            with client(server.url, ssl_ca_certs=str(server.certificates.ca)) as redis_:
                assert redis_.ping()
            stranger = client(server.url, ssl_ca_certs=str(Certificates(tmp_path).ca))
            refused = pytest.raises(redis.ConnectionError, match="CERTIFICATE_VERIFY_FAILED")
            with stranger as redis_, refused:
                redis_.ping()

    def test_a_client_may_have_to_show_a_certificate(self) -> None:
        with RedisServer(tls=True, client_certificates=True) as server:
            files = server.certificates
            trust = {"ssl_ca_certs": str(files.ca)}
            shown = {"ssl_certfile": str(files.client), "ssl_keyfile": str(files.client_key)}
            with client(server.url, **trust, **shown) as redis_:
                assert redis_.ping()
            with client(server.url, **trust) as redis_, pytest.raises(redis.ConnectionError):
                redis_.ping()


class TestCluster:
    def test_every_primary_answers_for_a_key_of_its_own(self, cluster: ClusterSetup) -> None:
        assert len(cluster.primaries()) == 3
        with closing(RedisCluster(host="127.0.0.1", port=cluster.nodes[5].port)) as redis_:
            for node in cluster.primaries():
                key = cluster.key_on(node)
                assert redis_.set(key, "value")
                assert node.cli("get", key) == "value"

    def test_a_slot_in_motion_answers_ask(self, cluster: ClusterSetup) -> None:
        source, target, _ = cluster.primaries()
        key, slot = "{moving}\n1", cluster.slot_of("{moving}")
        cluster.move_slot(slot, source)
        source.cli("set", key, "value")
        with closing(RedisCluster(host="127.0.0.1", port=source.port)) as redis_:
            with cluster.migrating(slot, target) as migration:
                assert source.cli("get", key) == "value"
                with pytest.raises(ServerError, match=f"ASK {slot} {target.address}"):
                    source.cli("set", "{moving}2", "value")
                assert migration.move_keys(most=10) == 1
                with pytest.raises(ServerError, match=f"ASK {slot} {target.address}"):
                    source.cli("get", key)
                with pytest.raises(ServerError, match=f"MOVED {slot} {source.address}"):
                    target.cli("get", key)
                assert redis_.get(key) == b"value"
            assert cluster.owner_of(slot) is target
            assert redis_.get(key) == b"value"


class TestProxy:
    @pytest.fixture
    def proxy(self, server: RedisServer) -> Iterator[SilentProxy]:
        server.cli("flushall")
        with SilentProxy(server.port) as proxy:
            yield proxy

    def test_it_passes_on_and_records(self, proxy: SilentProxy) -> None:
        with client(proxy.url) as one, client(proxy.url) as two:
            assert (one.incr("key"), two.incr("key")) == (1, 2)
            assert (proxy.opened, proxy.open_now) == (2, 2)
        assert proxy.commands("incrby") == [(b"INCRBY", b"key", b"1")] * 2
        assert all(b"INCRBY\r\n$3\r\nkey\r\n" in sent for sent in proxy.requests)
        proxy.forget()
        assert (proxy.opened, proxy.commands()) == (0, [])

    def test_a_swallowed_reply_was_to_a_request_that_the_server_saw_once(
        self, proxy: SilentProxy, server: RedisServer
    ) -> None:
        before = server.calls("incrby")
        with client(proxy.url) as redis_:
            redis_.ping()
            proxy.swallow_replies()
            with pytest.raises(redis.TimeoutError):
                redis_.incr("key")
        assert server.cli("get", "key") == "1"
        assert len(proxy.commands("incrby")) == server.calls("incrby") - before == 1

    def test_a_swallowed_request_never_reaches_the_server(
        self, proxy: SilentProxy, server: RedisServer
    ) -> None:
        with client(proxy.url) as redis_:
            redis_.ping()
            proxy.swallow_requests()
            with pytest.raises(redis.TimeoutError):
                redis_.incr("key")
            assert server.cli("exists", "key") == "0"
            proxy.heal()
            assert redis_.incr("key") == 1

    def test_replies_come_late(self, proxy: SilentProxy) -> None:
        proxy.delay_replies(ms=1_000)
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=0.05) as asking:
            asking.sendall(b"PING\r\n")
            with pytest.raises(TimeoutError):
                asking.recv(100)
            asking.settimeout(10.0)
            assert asking.recv(100) == b"+PONG\r\n"

    def test_refused_connections_are_those_to_come(self, proxy: SilentProxy) -> None:
        with client(proxy.url) as old, client(proxy.url) as new:
            old.ping()
            proxy.refuse_connections()
            assert old.ping()
            with pytest.raises(redis.ConnectionError, match="refused"):
                new.ping()
            proxy.heal()
            assert new.ping()

    def test_cut_connections_are_those_that_there_are(self, proxy: SilentProxy) -> None:
        with client(proxy.url) as redis_:
            redis_.ping()
            proxy.cut_connections()
            wait_until(lambda: proxy.open_now == 0, "no connection is open")
            assert proxy.opened == 1
