"""A policy in a real etcd keeps the contract of storages, and lies there as it is documented."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from headgate.control.etcd import EtcdSource
from headgate.control.etcd.client import TXN
from headgate.control.etcd.source import encode
from headgate.control.etcd.url import MAX_REQUEST_BYTES
from headgate.control.revision import (
    ConflictError,
    Revision,
    SourceError,
    UnknownRevisionError,
)
from tests.support.policy_source_contract import SharedPolicySourceContract, revision
from tests.support.servers.etcd import EtcdServer, etcd_is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(not etcd_is_installed(), reason="run scripts/install-servers")

_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[EtcdServer]:
    with EtcdServer() as running:
        yield running


@pytest.fixture
def prefix() -> str:
    """A place that nobody has used."""
    return f"/place-{next(_numbers)}/"


@contextmanager
def opened(server: EtcdServer, prefix: str, options: str = "") -> Iterator[EtcdSource]:
    storage = EtcdSource.open(f"etcd://{server.address}{prefix}?timeout=5{options}")
    try:
        yield storage
    finally:
        storage.close()


class TestEtcdSource(SharedPolicySourceContract):
    @pytest.fixture(autouse=True)
    def _on(self, server: EtcdServer) -> None:
        self.server = server

    @contextmanager
    def opened(self, place: Path) -> Iterator[EtcdSource]:
        with opened(self.server, f"{place}/") as storage:
            yield storage


def large(number: int, *, size: int) -> Revision:
    """A revision whose document has *size* letters, which cannot be compressed much."""
    letters = "".join(f"{hash((number, n)) & 0xFFFFFFFF:08x}" for n in range(size // 8))
    return Revision(number, {"version": 1, "rules": [], "x": letters}, {}, revision(number).change)


def keys(server: EtcdServer, prefix: str) -> list[str]:
    return server.ctl("get", "--prefix", "--keys-only", prefix).split()


def test_the_newest_and_each_of_the_kept_have_keys_of_their_own(
    server: EtcdServer, prefix: str
) -> None:
    with opened(server, prefix) as storage:
        storage.commit(revision(1, "a"))
        storage.commit(revision(2, "b"))
    history = [f"{prefix}history/{number:020}" for number in (1, 2)]
    assert keys(server, prefix) == [*history, f"{prefix}policy"]
    kept = json.loads(server.ctl("get", "--print-value-only", f"{prefix}policy"))
    assert len(kept.pop("nonce")) == 16
    assert kept == json.loads(revision(2, "b").to_json())


def test_the_oldest_revisions_are_removed_as_new_ones_come(server: EtcdServer, prefix: str) -> None:
    with opened(server, prefix, "&history=3") as storage:
        for number in range(1, 8):
            storage.commit(revision(number, "a"))
        assert [number for number, _ in storage.history()] == [7, 6, 5]
        assert storage.at(5) == revision(5, "a")
        with pytest.raises(UnknownRevisionError, match=r"no revision 4 .* last 3 are kept"):
            storage.at(4)
    assert len(keys(server, prefix)) == 4


def test_a_history_longer_than_a_page_is_whole(server: EtcdServer, prefix: str) -> None:
    with opened(server, prefix) as storage:
        for number in range(1, 24):
            storage.commit(revision(number, "a"))
        assert [number for number, _ in storage.history()] == [*range(23, 0, -1)]
        assert [n for n, _ in storage.history(before=22, most=12)] == [*range(21, 9, -1)]
        assert storage.history(most=0) == []


def test_a_large_policy_is_compressed_and_comes_back(server: EtcdServer, prefix: str) -> None:
    many = [f"rule-{number}" for number in range(2_000)]
    with opened(server, prefix) as storage:
        storage.commit(revision(1, *many))
        assert storage.head() == revision(1, *many)
    json_size = len(revision(1, *(f"rule-{number}" for number in range(2_000))).to_json())
    kept = server.ctl("get", "-w", "json", f"{prefix}policy")
    assert len(json.loads(kept)["kvs"][0]["value"]) < json_size / 4


class TestSize:
    def test_all_that_etcd_takes_is_sent_and_taken(self, server: EtcdServer, prefix: str) -> None:
        wanted = (MAX_REQUEST_BYTES - 1_000) // 2  # it is written twice
        size = 1_400_000
        for _ in range(2):
            size = size * wanted // len(encode(large(1, size=size), "0" * 16))

        with opened(server, prefix) as storage:
            storage.commit(large(1, size=size))
            storage.commit(large(2, size=size - 4_000))
            assert storage.at(1) == large(1, size=size)
            assert [number for number, _ in storage.history()] == [2, 1]
            with pytest.raises(SourceError, match="Nothing was changed"):
                storage.commit(large(3, size=size + 4_000))

    def test_more_is_refused_before_it_is_sent(self, server: EtcdServer, prefix: str) -> None:
        with opened(server, prefix) as storage:
            with pytest.raises(SourceError, match=r"etcd takes 1572864\. Nothing was changed"):
                storage.commit(large(1, size=2_000_000))
            assert (storage.head()).number == 0

    def test_what_only_etcd_finds_too_large_is_a_clear_error(
        self, server: EtcdServer, prefix: str
    ) -> None:
        with opened(server, prefix, "&max_request_bytes=9000000") as storage:
            with pytest.raises(SourceError, match="does not accept so large a request"):
                storage.commit(large(1, size=1_700_000))
            assert (storage.head()).number == 0


def fill(storage: EtcdSource) -> None:
    for number in itertools.count(1):
        storage.commit(large(number, size=200_000))


def test_an_etcd_without_room_says_so_and_can_still_be_read(prefix: str) -> None:
    with (
        EtcdServer(options=["--quota-backend-bytes=1000000"]) as server,
        opened(server, prefix) as storage,
    ):
        with pytest.raises(SourceError, match="has no room left"):
            fill(storage)
        assert storage.head().number > 0


def test_of_many_writers_on_many_connections_none_loses_an_update(
    server: EtcdServer, prefix: str
) -> None:
    def write(name: str, times: int) -> None:
        with opened(server, prefix) as storage:
            while times:
                head = storage.head()
                rules = [*(rule["id"] for rule in head.document["rules"]), f"{name}-{times}"]
                try:
                    storage.commit(revision(head.number + 1, *rules, author=name))
                except ConflictError:
                    continue
                times -= 1

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda number: write(f"writer-{number}", 6), range(5)))
    with opened(server, prefix) as storage:
        head = storage.head()
        assert head.number == 30
        assert len({rule["id"] for rule in head.document["rules"]}) == 30


def test_two_who_write_the_very_same_are_still_two(server: EtcdServer, prefix: str) -> None:
    def write(storage: EtcdSource) -> bool:
        try:
            storage.commit(revision(1, "a"))
        except ConflictError:
            return False
        return True

    with (
        opened(server, prefix) as one,
        opened(server, prefix) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        assert sorted(pool.map(write, (one, other))) == [False, True]


def test_a_transaction_that_arrives_twice_is_made_once_and_is_no_conflict(
    server: EtcdServer, prefix: str
) -> None:
    """As when the first answer is lost and the request goes to the next member."""

    with opened(server, prefix) as storage:
        ask = storage._client.ask

        def twice(path: str, body: Any, *, insists: bool = False) -> Any:
            if path == TXN:
                ask(path, body)
            return ask(path, body)

        storage._client.ask = twice  # type: ignore[method-assign]
        storage.commit(revision(1, "a"))
        assert storage.head() == revision(1, "a")
        assert [number for number, _ in storage.history()] == [1]


class TestDamage:
    def test_without_its_key_the_newest_is_that_of_the_history(
        self, server: EtcdServer, prefix: str
    ) -> None:
        with opened(server, prefix) as storage:
            storage.commit(revision(1, "a"))
            storage.commit(revision(2, "b"))
            server.ctl("del", f"{prefix}policy")
            assert storage.head() == revision(2, "b")
            with pytest.raises(ConflictError):
                storage.commit(revision(1, "c"))
            storage.commit(revision(3, "c"))
            assert storage.head() == revision(3, "c")
        assert f"{prefix}policy" in keys(server, prefix)

    @pytest.mark.parametrize("value", ["no JSON", '{"number":1}', "", "[]"])
    def test_what_is_no_revision_is_an_error_that_names_the_key(
        self, server: EtcdServer, prefix: str, value: str
    ) -> None:
        with opened(server, prefix) as storage:
            server.ctl("put", f"{prefix}policy", "--", value)
            with pytest.raises(SourceError, match=f"{prefix}policy in etcd"):
                storage.head()


def test_keys_of_others_below_a_longer_prefix_are_left_alone(
    server: EtcdServer, prefix: str
) -> None:
    name = prefix.rstrip("/")
    with opened(server, f"{name}/a/") as one, opened(server, f"{name}/ab/") as other:
        other.commit(revision(1, "theirs"))
        with opened(server, f"{name}/a/", "&history=1") as storage:
            for number in (1, 2, 3):
                storage.commit(revision(number, "ours"))
        assert one.head() == revision(3, "ours")
        assert other.history() == [(1, revision(1).change)]
