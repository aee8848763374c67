"""What every storage of policies promises: one suite, to be run over each.

A subclass says how to open one. Where several can look at the same place, `another` opens a second.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from headgate.control.revision import Change, ConflictError, Revision, UnknownRevisionError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from headgate.control.storage import PolicyStorage

T = TypeVar("T")

SOON = 10.0
"""Seconds after which a test gives up."""


def document(*rules: str, limit: str = "5/minute") -> dict[str, Any]:
    return {
        "version": 1,
        "rules": [{"id": rule, "key_by": "ip", "limit": limit} for rule in rules],
    }


def revision(number: int, *rules: str, author: str = "ada", limit: str = "5/minute") -> Revision:
    versions = dict.fromkeys(rules, number)
    change = Change(author, 1_700_000_000_000_000_000 + number, f"put revision {number}", "a note")
    return Revision(number, document(*rules, limit=limit), versions, change)


async def soon(awaitable: Awaitable[T]) -> T:
    async with asyncio.timeout(SOON):
        return await awaitable


async def following(revisions: AsyncIterator[Revision], number: int) -> Revision:
    """The revision *number*, which must come, perhaps after others."""
    async with asyncio.timeout(SOON):
        async for one in revisions:
            if one.number == number:
                return one
    raise AssertionError("the watch ended")


class PolicyStorageContract:
    """The suite. Each test has a storage with nothing in it."""

    def opened(self, place: Path) -> AbstractAsyncContextManager[PolicyStorage]:
        """A storage in a place that is new for each *place*, and the same for the same."""
        raise NotImplementedError

    @pytest.fixture
    def run(self, tmp_path: Path) -> Callable[[Callable[[PolicyStorage], Awaitable[None]]], None]:
        def run(body: Callable[[PolicyStorage], Awaitable[None]]) -> None:
            async def main() -> None:
                async with self.opened(tmp_path / "policy.yaml") as storage:
                    await body(storage)

            asyncio.run(main())

        return run

    def test_a_new_storage_is_at_revision_0_without_rules(self, run: Any) -> None:
        async def body(storage: PolicyStorage) -> None:
            head = await storage.head()
            assert (head.number, dict(head.document)) == (0, {"version": 1, "rules": []})
            assert list(await storage.history()) == []

        run(body)

    def test_what_is_committed_is_the_head_and_can_be_had_again(self, run: Any) -> None:
        async def body(storage: PolicyStorage) -> None:
            for number in (1, 2, 3):
                await storage.commit(revision(number, *"abc"[:number]))
            assert await storage.head() == revision(3, *"abc")
            assert await storage.at(3) == revision(3, *"abc")
            assert await storage.at(1) == revision(1, "a")

        run(body)

    @pytest.mark.parametrize("number", [0, 1, 3, 100])
    def test_only_the_next_number_can_be_committed(self, run: Any, number: int) -> None:
        async def body(storage: PolicyStorage) -> None:
            await storage.commit(revision(1, "a"))
            with pytest.raises(ConflictError):
                await storage.commit(revision(number, "b"))
            assert await storage.head() == revision(1, "a")
            assert [one for one, _ in await storage.history()] == [1]

        run(body)

    def test_of_writers_at_the_same_time_one_wins(self, run: Any) -> None:
        async def body(storage: PolicyStorage) -> None:
            await storage.commit(revision(1, "a"))
            attempts = [storage.commit(revision(2, f"w{n}", author=f"w{n}")) for n in range(5)]
            ends = await asyncio.gather(*attempts, return_exceptions=True)
            assert sum(end is None for end in ends) == 1
            assert sum(isinstance(end, ConflictError) for end in ends) == 4
            winner = ends.index(None)
            assert await storage.head() == revision(2, f"w{winner}", author=f"w{winner}")

        run(body)

    @pytest.mark.parametrize("number", [-1, 0, 2, 10**12])
    def test_a_revision_that_is_not_there_is_an_error(self, run: Any, number: int) -> None:
        async def body(storage: PolicyStorage) -> None:
            await storage.commit(revision(1, "a"))
            with pytest.raises(UnknownRevisionError):
                await storage.at(number)

        run(body)

    def test_the_history_is_the_newest_first_and_can_be_gone_through(self, run: Any) -> None:
        async def body(storage: PolicyStorage) -> None:
            for number in range(1, 8):
                await storage.commit(revision(number, f"r{number}"))
            every = list(await storage.history())
            assert every == [(n, revision(n).change) for n in range(7, 0, -1)]
            assert list(await storage.history(most=3)) == every[:3]
            assert list(await storage.history(before=5, most=3)) == every[3:6]
            assert list(await storage.history(before=1)) == []

        run(body)

    def test_a_watch_begins_with_what_is_there_unless_it_is_known(self, run: Any) -> None:
        async def body(storage: PolicyStorage) -> None:
            await storage.commit(revision(1, "a"))
            async with aclosing(storage.watch(0)) as revisions:  # type: ignore[type-var]
                assert await soon(anext(revisions)) == revision(1, "a")
            async with aclosing(storage.watch(1)) as revisions:  # type: ignore[type-var]
                waiting = asyncio.ensure_future(anext(revisions))
                await storage.commit(revision(2, "b"))
                assert await soon(waiting) == revision(2, "b")

        run(body)

    def test_a_watch_goes_on_to_the_newest(self, run: Any) -> None:
        async def body(storage: PolicyStorage) -> None:
            async with aclosing(storage.watch(0)) as revisions:  # type: ignore[type-var]
                for number in range(1, 6):
                    await storage.commit(revision(number, f"r{number}"))
                assert await following(revisions, 5) == revision(5, "r5")
                await storage.commit(revision(6, "last"))
                assert await following(revisions, 6) == revision(6, "last")

        run(body)

    def test_several_can_watch(self, run: Any) -> None:
        async def body(storage: PolicyStorage) -> None:
            watches = [storage.watch(0) for _ in range(3)]
            waiting = [asyncio.ensure_future(following(watch, 1)) for watch in watches]
            await storage.commit(revision(1, "a"))
            assert await soon(asyncio.gather(*waiting)) == [revision(1, "a")] * 3
            for watch in watches:
                await watch.aclose()  # type: ignore[attr-defined]

        run(body)

    def test_texts_of_all_kinds_come_back(self, run: Any) -> None:
        async def body(storage: PolicyStorage) -> None:
            odd = document("a")
            odd["rules"][0]["description"] = "été \N{SNOWMAN} 'quoted' \"twice\" # no comment\n- x"
            odd["rules"][0]["match"] = {
                "headers": {"x": ["yes", "1e3", "010", "null", "~", "1.50"]}
            }
            change = Change("ada \N{SNOWMAN}", 1, "put rule a", "why: \u2603")
            await storage.commit(Revision(1, odd, {"a": 1}, change))
            head = await storage.head()
            assert (dict(head.document), head.change) == (odd, change)

        run(body)


class SharedPolicyStorageContract(PolicyStorageContract):
    """For storages that several can have open: nodes of a fleet, workers of a machine."""

    def test_another_sees_what_one_commits(self, tmp_path: Path) -> None:
        async def main() -> None:
            place = tmp_path / "policy.yaml"
            async with self.opened(place) as one, self.opened(place) as other:
                await one.commit(revision(1, "a"))
                assert await other.head() == revision(1, "a")
                watch = other.watch(1)
                waiting = asyncio.ensure_future(following(watch, 2))
                await one.commit(revision(2, "b"))
                assert await soon(waiting) == revision(2, "b")
                await watch.aclose()  # type: ignore[attr-defined]

        asyncio.run(main())

    def test_another_cannot_overwrite_what_it_has_not_seen(self, tmp_path: Path) -> None:
        async def main() -> None:
            place = tmp_path / "policy.yaml"
            async with self.opened(place) as one, self.opened(place) as other:
                await one.commit(revision(1, "a"))
                assert (await other.head()).number == 1
                await one.commit(revision(2, "b"))
                with pytest.raises(ConflictError):
                    await other.commit(revision(2, "c"))
                assert await other.head() == revision(2, "b")

        asyncio.run(main())

    def test_what_was_committed_is_there_when_it_is_opened_again(self, tmp_path: Path) -> None:
        async def main() -> None:
            place = tmp_path / "policy.yaml"
            async with self.opened(place) as one:
                await one.commit(revision(1, "a"))
                await one.commit(revision(2, "b"))
            async with self.opened(place) as again:
                assert await again.head() == revision(2, "b")
                assert await again.at(1) == revision(1, "a")
                await again.commit(revision(3, "c"))

        asyncio.run(main())
