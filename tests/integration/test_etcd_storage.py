"""A policy in a real etcd keeps the contract of storages, and lies there as it is documented."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from headgate.control.etcd import EtcdStorage
from headgate.control.etcd import storage as transactions
from headgate.control.etcd.messages import TXN
from headgate.control.etcd.storage import decode, encode
from headgate.control.etcd.url import MAX_REQUEST_BYTES
from headgate.control.revision import (
    ConflictError,
    Revision,
    StorageError,
    UnknownRevisionError,
)
from tests.support.policy_storage_contract import SharedPolicyStorageContract, revision
from tests.support.servers.etcd import EtcdServer, etcd_is_installed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
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


@asynccontextmanager
async def opened(server: EtcdServer, prefix: str, options: str = "") -> AsyncIterator[EtcdStorage]:
    storage = EtcdStorage.open(f"etcd://{server.address}{prefix}?timeout=5{options}")
    try:
        yield storage
    finally:
        await storage.aclose()


class TestEtcdStorage(SharedPolicyStorageContract):
    @pytest.fixture(autouse=True)
    def _on(self, server: EtcdServer) -> None:
        self.server = server

    @asynccontextmanager
    async def opened(self, place: Path) -> AsyncIterator[EtcdStorage]:
        async with opened(self.server, f"{place}/") as storage:
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
    async def main() -> None:
        async with opened(server, prefix) as storage:
            await storage.commit(revision(1, "a"))
            await storage.commit(revision(2, "b"))

    asyncio.run(main())
    history = [f"{prefix}history/{number:020}" for number in (1, 2)]
    assert keys(server, prefix) == [*history, f"{prefix}policy"]
    kept = json.loads(server.ctl("get", "--print-value-only", f"{prefix}policy"))
    assert len(kept.pop("nonce")) == 16
    assert kept == json.loads(revision(2, "b").to_json())


def test_the_oldest_revisions_are_removed_as_new_ones_come(server: EtcdServer, prefix: str) -> None:
    async def main() -> None:
        async with opened(server, prefix, "&history=3") as storage:
            for number in range(1, 8):
                await storage.commit(revision(number, "a"))
            assert [number for number, _ in await storage.history()] == [7, 6, 5]
            assert await storage.at(5) == revision(5, "a")
            with pytest.raises(UnknownRevisionError, match=r"no revision 4 .* last 3 are kept"):
                await storage.at(4)

    asyncio.run(main())
    assert len(keys(server, prefix)) == 4


def test_a_history_longer_than_a_page_is_whole(server: EtcdServer, prefix: str) -> None:
    async def main() -> None:
        async with opened(server, prefix) as storage:
            for number in range(1, 24):
                await storage.commit(revision(number, "a"))
            assert [number for number, _ in await storage.history()] == [*range(23, 0, -1)]
            assert [n for n, _ in await storage.history(before=22, most=12)] == [*range(21, 9, -1)]
            assert await storage.history(most=0) == []

    asyncio.run(main())


def test_a_large_policy_is_compressed_and_comes_back(server: EtcdServer, prefix: str) -> None:
    async def main() -> None:
        many = [f"rule-{number}" for number in range(2_000)]
        async with opened(server, prefix) as storage:
            watch = storage.watch(0)
            waiting = asyncio.ensure_future(anext(watch))
            await storage.commit(revision(1, *many))
            assert await waiting == revision(1, *many)
            assert await storage.head() == revision(1, *many)
            await watch.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())
    json_size = len(revision(1, *(f"rule-{number}" for number in range(2_000))).to_json())
    kept = server.ctl("get", "-w", "json", f"{prefix}policy")
    assert len(json.loads(kept)["kvs"][0]["value"]) < json_size / 4


class TestSize:
    def test_all_that_etcd_takes_is_sent_and_taken(self, server: EtcdServer, prefix: str) -> None:
        wanted = (MAX_REQUEST_BYTES - 1_000) // 2  # it is written twice
        size = 1_400_000
        for _ in range(2):
            size = size * wanted // len(encode(large(1, size=size), "0" * 16))

        async def main() -> None:
            async with opened(server, prefix) as storage:
                await storage.commit(large(1, size=size))
                await storage.commit(large(2, size=size - 4_000))
                assert await storage.at(1) == large(1, size=size)
                assert [number for number, _ in await storage.history()] == [2, 1]
                with pytest.raises(StorageError, match="Nothing was changed"):
                    await storage.commit(large(3, size=size + 4_000))

        asyncio.run(main())

    def test_more_is_refused_before_it_is_sent(self, server: EtcdServer, prefix: str) -> None:
        async def main() -> None:
            async with opened(server, prefix) as storage:
                with pytest.raises(StorageError, match=r"etcd takes 1572864\. Nothing was changed"):
                    await storage.commit(large(1, size=2_000_000))
                assert (await storage.head()).number == 0

        asyncio.run(main())

    def test_what_only_etcd_finds_too_large_is_a_clear_error(
        self, server: EtcdServer, prefix: str
    ) -> None:
        async def main() -> None:
            async with opened(server, prefix, "&max_request_bytes=9000000") as storage:
                with pytest.raises(StorageError, match="does not take so much in one request"):
                    await storage.commit(large(1, size=1_700_000))
                assert (await storage.head()).number == 0

        asyncio.run(main())


async def fill(storage: EtcdStorage) -> None:
    for number in itertools.count(1):
        await storage.commit(large(number, size=200_000))


def test_an_etcd_without_room_says_so_and_can_still_be_read(prefix: str) -> None:
    async def main() -> None:
        with EtcdServer(options=["--quota-backend-bytes=1000000"]) as server:
            async with opened(server, prefix) as storage:
                with pytest.raises(StorageError, match="has no room left"):
                    await fill(storage)
                assert (await storage.head()).number > 0

    asyncio.run(main())


def test_of_many_writers_on_many_connections_none_loses_an_update(
    server: EtcdServer, prefix: str
) -> None:
    async def write(name: str, times: int) -> None:
        async with opened(server, prefix) as storage:
            while times:
                head = await storage.head()
                rules = [*(rule["id"] for rule in head.document["rules"]), f"{name}-{times}"]
                try:
                    await storage.commit(revision(head.number + 1, *rules, author=name))
                except ConflictError:
                    continue
                times -= 1

    async def main() -> None:
        await asyncio.gather(*(write(f"writer-{number}", 6) for number in range(5)))
        async with opened(server, prefix) as storage:
            head = await storage.head()
            assert head.number == 30
            assert len({rule["id"] for rule in head.document["rules"]}) == 30

    asyncio.run(main())


def test_two_who_write_the_very_same_are_still_two(server: EtcdServer, prefix: str) -> None:
    async def main() -> None:
        async with opened(server, prefix) as one, opened(server, prefix) as other:
            ends = await asyncio.gather(
                *(storage.commit(revision(1, "a")) for storage in (one, other)),
                return_exceptions=True,
            )
            assert sorted(type(end) is ConflictError for end in ends) == [False, True]

    asyncio.run(main())


def test_a_transaction_that_arrives_twice_is_made_once_and_is_no_conflict(
    server: EtcdServer, prefix: str
) -> None:
    """As when the first answer is lost and the request goes to the next member."""

    async def main() -> None:
        async with opened(server, prefix) as storage:
            ask = storage._client.ask

            async def twice(method: Any, request: Any, *, insists: bool = False) -> Any:
                if method is TXN:
                    await ask(method, request)
                return await ask(method, request)

            storage._client.ask = twice  # type: ignore[method-assign]
            await storage.commit(revision(1, "a"))
            assert await storage.head() == revision(1, "a")
            assert [number for number, _ in await storage.history()] == [1]

    asyncio.run(main())


class TestDamage:
    def test_without_its_key_the_newest_is_that_of_the_history(
        self, server: EtcdServer, prefix: str
    ) -> None:
        async def main() -> None:
            async with opened(server, prefix) as storage:
                await storage.commit(revision(1, "a"))
                await storage.commit(revision(2, "b"))
                server.ctl("del", f"{prefix}policy")
                assert await storage.head() == revision(2, "b")
                with pytest.raises(ConflictError):
                    await storage.commit(revision(1, "c"))
                await storage.commit(revision(3, "c"))
                assert await storage.head() == revision(3, "c")

        asyncio.run(main())
        assert f"{prefix}policy" in keys(server, prefix)

    @pytest.mark.parametrize("value", ["no JSON", '{"number":1}', "", "[]"])
    def test_what_is_no_revision_is_an_error_that_names_the_key(
        self, server: EtcdServer, prefix: str, value: str
    ) -> None:
        async def main() -> None:
            async with opened(server, prefix) as storage:
                server.ctl("put", f"{prefix}policy", "--", value)
                with pytest.raises(StorageError, match=f"{prefix}policy in etcd"):
                    await storage.head()
                with pytest.raises(StorageError, match=f"{prefix}policy in etcd"):
                    await anext(storage.watch(0))

        asyncio.run(main())


def test_keys_of_others_below_a_longer_prefix_are_left_alone(
    server: EtcdServer, prefix: str
) -> None:
    async def main() -> None:
        name = prefix.rstrip("/")
        async with opened(server, f"{name}/a/") as one, opened(server, f"{name}/ab/") as other:
            await other.commit(revision(1, "theirs"))
            async with opened(server, f"{name}/a/", "&history=1") as storage:
                for number in (1, 2, 3):
                    await storage.commit(revision(number, "ours"))
            assert await one.head() == revision(3, "ours")
            assert await other.history() == [(1, revision(1).change)]

    asyncio.run(main())


def test_the_inspection_after_a_lost_answer_is_understood_by_etcd(
    server: EtcdServer, prefix: str
) -> None:
    async def main() -> None:
        async with opened(server, prefix) as storage:
            await storage.commit(revision(1, "a"))
            request = transactions.inspection(storage._layout, 1)
            answer = await storage._client.ask(TXN, request)
            head, same = (one.response_range.kvs[0] for one in answer.responses)
            assert head.value == same.value
            assert head.mod_revision == same.mod_revision == answer.header.revision
            assert head.create_revision == head.mod_revision

    asyncio.run(main())


class TestWatchMessages:
    """That the numbers of fields which nothing else depends on are etcd's."""

    def test_a_large_past_comes_in_fragments(self, server: EtcdServer, prefix: str) -> None:
        async def main() -> None:
            async with opened(server, prefix) as storage:
                start = server.revision + 1
                for number in (1, 2, 3):
                    await storage.commit(large(number, size=1_300_000))
                stream = await storage._client.watch(storage._layout.head, start)
                parts = [await stream.events()]
                while sum(map(len, parts)) < 3:
                    parts.append(await stream.events())
                assert len(parts) > 1
                numbers = [decode(event.kv.value).number for part in parts for event in part]
                assert numbers == [1, 2, 3]
                stream.cancel()

        asyncio.run(main())

    def test_progress_is_told_without_being_asked_for(self, prefix: str) -> None:
        async def main() -> None:
            options = ["--experimental-watch-progress-notify-interval=100ms"]
            with EtcdServer(options=options) as server:
                async with opened(server, prefix, "&heartbeat=60") as storage:
                    stream = await storage._client.watch(storage._layout.head, 1)
                    assert await asyncio.wait_for(stream.events(), 30) == []
                    stream.cancel()

        asyncio.run(main())
