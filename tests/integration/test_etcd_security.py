"""TLS and logins, against real etcds that insist on them."""

from __future__ import annotations

import time
from base64 import b64encode
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

import pytest

from headgate.control.etcd import EtcdSource
from headgate.control.revision import ReadOnlyError, Revision, SourceError
from tests.support.etcd_watch import Watcher
from tests.support.policy_source_contract import revision
from tests.support.servers import Certificates, wait_until
from tests.support.servers.etcd import EtcdServer, etcd_is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(not etcd_is_installed(), reason="run scripts/install-servers")

PASSWORD = "p@ss/w:rd"  # noqa: S105 - of users who live for one test
ESCAPED = "p%40ss%2Fw%3Ard"


@contextmanager
def opened(url: str, password: str | None = None) -> Iterator[EtcdSource]:
    storage = EtcdSource.open(url, password=password, environ={"HEADGATE_ETCD_PASSWORD": PASSWORD})
    try:
        yield storage
    finally:
        storage.close()


@pytest.fixture(scope="module")
def closed() -> Iterator[EtcdServer]:
    """One that talks only to those who show a certificate."""
    with EtcdServer(tls=True, client_certificates=True) as running:
        yield running


@pytest.fixture(scope="module")
def guarded() -> Iterator[EtcdServer]:
    """One that wants a login, which runs out after a second without use."""
    with EtcdServer(options=["--bcrypt-cost=4", "--auth-token-ttl=1"]) as running:
        running.add_user("writer", PASSWORD, permission="readwrite", prefix="/headgate/")
        running.add_user("reader", PASSWORD, permission="read", prefix="/headgate/")
        running.add_user("stranger", PASSWORD, permission="readwrite", prefix="/other/")
        yield running


def works(storage: EtcdSource) -> bool:
    """Whether one can look, change and watch."""
    head = storage.head()
    with Watcher(storage) as watcher:
        storage.commit(revision(head.number + 1, "a"))
        watcher.reaches(head.number + 1)
        return not watcher.losses


class TestTLS:
    @pytest.fixture
    def server(self, closed: EtcdServer) -> EtcdServer:
        return closed

    def shown(self, server: EtcdServer) -> str:
        files = server.certificates
        return f"{server.url}&cert={files.client}&key={files.client_key}"

    def test_with_certificates_on_both_sides_it_works(self, server: EtcdServer) -> None:
        with opened(self.shown(server)) as storage:
            assert works(storage)
            assert storage.place == f"etcds://{server.address}/headgate/"

    def test_a_server_is_known_by_the_name_it_is_expected_to_have(self, server: EtcdServer) -> None:
        with opened(f"{self.shown(server)}&server_name=localhost") as storage:
            assert works(storage)
        with (
            opened(f"{self.shown(server)}&server_name=other.test") as storage,
            pytest.raises(SourceError, match="cannot be reached"),
        ):
            storage.head()

    def test_without_a_certificate_of_its_own_nobody_gets_in(self, server: EtcdServer) -> None:
        with opened(server.url) as storage, pytest.raises(SourceError, match="cannot be reached"):
            storage.head()

    def test_a_server_of_another_authority_is_not_trusted(
        self, server: EtcdServer, tmp_path: Path
    ) -> None:
        url = f"etcds://{server.address}?ca={Certificates(tmp_path).ca}"
        with opened(url) as storage, pytest.raises(SourceError, match="cannot be reached"):
            storage.head()

    def test_without_tls_a_server_with_it_cannot_be_reached(self, server: EtcdServer) -> None:
        with (
            opened(f"etcd://{server.address}?timeout=2") as storage,
            pytest.raises(SourceError, match=r"cannot be reached|in time"),
        ):
            storage.head()


class TestLogin:
    @pytest.fixture
    def server(self, guarded: EtcdServer) -> EtcdServer:
        return guarded

    def test_a_user_with_the_password_may(self, server: EtcdServer) -> None:
        with opened(f"etcd://writer:{ESCAPED}@{server.address}") as storage:
            assert works(storage)
            assert "writer" not in storage.place

    def test_the_password_may_come_from_elsewhere(self, server: EtcdServer) -> None:
        with opened(f"etcd://writer@{server.address}") as storage:
            assert works(storage)
        with opened(f"etcd://writer@{server.address}", PASSWORD) as storage:
            assert works(storage)

    @pytest.mark.parametrize("login", ["writer:wrong", "nobody:wrong"])
    def test_a_wrong_password_is_said_and_not_shown(self, server: EtcdServer, login: str) -> None:
        with opened(f"etcd://{login}@{server.address}") as storage:
            for attempt in (storage.head, lambda: storage.commit(revision(1)), storage.history):
                with pytest.raises(
                    SourceError, match="does not know this user and password"
                ) as caught:
                    attempt()
                assert ":wrong" not in str(caught.value)

    def test_without_a_login_nobody_may(self, server: EtcdServer) -> None:
        with (
            opened(f"etcd://{server.address}") as storage,
            pytest.raises(SourceError, match="no longer accepts the login"),
        ):
            storage.head()

    def test_who_may_only_read_sees_every_change_and_makes_none(self, server: EtcdServer) -> None:
        with (
            opened(f"etcd://writer@{server.address}") as writer,
            opened(f"etcd://reader@{server.address}") as reader,
            Watcher(reader) as watcher,
        ):
            number = (reader.head()).number + 1
            with pytest.raises(ReadOnlyError, match="not permit"):
                reader.commit(revision(number, "b"))
            writer.commit(revision(number, "a"))
            assert reader.head() == revision(number, "a")
            watcher.reaches(number)

    def test_who_may_not_even_read_is_told(self, server: EtcdServer) -> None:
        with opened(f"etcd://stranger@{server.address}") as storage:
            with pytest.raises(SourceError, match="does not permit"):
                storage.head()
            with pytest.raises(SourceError, match="does not permit"):
                storage.wait(Revision(0), 60)

    def test_a_watch_that_is_refused_is_told_why(self, server: EtcdServer) -> None:
        with (
            opened(f"etcd://reader@{server.address}") as storage,
            pytest.raises(SourceError, match="does not permit this user"),
        ):
            storage._client.watch(b64encode(b"/other/policy").decode(), 1)

    def test_a_login_that_has_run_out_is_made_again(self, server: EtcdServer) -> None:
        with opened(f"etcd://writer@{server.address}") as storage:
            head = storage.head()
            token = storage._client._token
            numbers = count(head.number + 1)

            def is_renewed() -> bool:
                storage.commit(revision(next(numbers), "a"))
                return storage._client._token not in (None, token)

            wait_until(is_renewed, "etcd has dropped the login", every=2.5)  # each use renews it

    def test_a_watch_outlives_its_login(self, server: EtcdServer) -> None:
        url = f"etcd://writer@{server.address}?timeout=5&heartbeat=60"
        with opened(url) as storage, Watcher(storage) as watcher:
            number = (storage.head()).number + 1
            watcher.reaches(number - 1)
            time.sleep(2.5)
            storage.commit(revision(number, "a"))
            watcher.reaches(number)
            server.restart()  # and it forgets all logins
            with opened(f"etcd://writer@{server.address}") as other:
                other.commit(revision(number + 1, "b"))
            watcher.reaches(number + 1)


def test_a_login_where_none_is_needed_does_no_harm() -> None:
    with (
        EtcdServer(options=["--bcrypt-cost=4"]) as server,
        opened(f"etcd://writer@{server.address}") as storage,
    ):
        assert works(storage)
        server.add_user("writer", PASSWORD, permission="readwrite", prefix="/headgate/")
        assert works(storage)  # now it is needed
