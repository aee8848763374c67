"""What is newest comes into force, and what is in force stays whatever happens to the storage."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest

from headgate.control.feed import PolicyFeed
from headgate.control.file_source import FileStorage
from headgate.control.revision import Revision, revision_from_json
from headgate.errors import OptionError
from tests.support.policy_files import BAD, policy_text, save
from tests.support.shaky_storage import Engine, ShakyStorage, made, until

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.control.feed import FeedState
    from headgate.control.storage import PolicyStorage


def fed(body: Any, *, first: Revision | None = None, **options: Any) -> None:
    """Run *body* with a feed that has started."""

    async def main() -> None:
        storage, engine = ShakyStorage(made(1) if first is None else first), Engine()
        async with feed_of(storage, engine, **options) as feed:
            await body(feed, storage, engine)

    asyncio.run(main())


def feed_of(storage: PolicyStorage, engine: Engine, **options: Any) -> PolicyFeed:
    return PolicyFeed(
        storage, engine, longest_wait=0.001, clock=lambda: 77, jitter=lambda: 0.0, **options
    )


def test_the_newest_revision_is_in_force_when_it_has_started() -> None:
    async def body(feed: PolicyFeed, _: ShakyStorage, engine: Engine) -> None:
        assert engine.revisions == [1]
        assert (feed.state.revision, feed.state.loaded_at_ns) == (1, 77)
        assert feed.state.is_current
        assert feed.state.not_ready == ()

    fed(body)


def test_each_further_revision_comes_into_force() -> None:
    async def body(feed: PolicyFeed, storage: ShakyStorage, engine: Engine) -> None:
        await storage.commit(made(2, "2/s"))
        await until(lambda: feed.state.revision == 2)
        await storage.commit(made(3, "3/s"))
        await until(lambda: feed.state.revision == 3)
        assert engine.limits == ["5/s", "2/s", "3/s"]
        assert engine.revisions == [1, 2, 3]

    fed(body)


def test_a_revision_that_was_committed_here_is_in_force_at_once_and_once() -> None:
    async def body(feed: PolicyFeed, storage: ShakyStorage, engine: Engine) -> None:
        await storage.commit(made(2))
        await feed.learn(made(2))
        assert engine.revisions == [1, 2]
        await storage.commit(made(3))
        await until(lambda: feed.state.revision == 3)
        await feed.learn(made(2))
        assert engine.revisions == [1, 2, 3]

    fed(body)


def test_a_lost_watch_is_begun_again_and_nothing_is_missed() -> None:
    async def body(feed: PolicyFeed, storage: ShakyStorage, engine: Engine) -> None:
        storage.fail()
        await until(lambda: feed.state.is_stale)
        assert not feed.state.is_current
        assert feed.state.trouble is not None
        assert feed.state.not_ready == ()
        await storage.commit(made(2))
        asked = storage.asked
        await until(lambda: storage.asked > asked + 3)
        assert engine.revisions == [1]
        storage.recover()
        await until(lambda: feed.state.revision == 2)
        assert feed.state.is_current
        assert feed.state.trouble is None

    fed(body)


def test_what_is_in_force_is_not_applied_again_after_an_outage() -> None:
    async def body(feed: PolicyFeed, storage: ShakyStorage, engine: Engine) -> None:
        storage.fail()
        await until(lambda: feed.state.is_stale)
        storage.recover()
        await until(lambda: not feed.state.is_stale)
        assert engine.revisions == [1]

    fed(body)


def test_the_storage_is_asked_again_at_times_even_if_a_watch_is_silent() -> None:
    async def body(feed: PolicyFeed, storage: ShakyStorage, engine: Engine) -> None:
        storage.restore(made(7))  # nobody tells the watch
        await until(lambda: feed.state.revision == 7)

    fed(body, longest_watch=0.001)


def test_a_storage_that_was_set_back_is_followed(caplog: pytest.LogCaptureFixture) -> None:
    async def body(feed: PolicyFeed, storage: ShakyStorage, engine: Engine) -> None:
        storage.fail()
        await until(lambda: feed.state.is_stale)
        storage.restore(made(3, "3/s"))
        storage.recover()
        await until(lambda: feed.state.revision == 3)
        assert engine.limits == ["5/s", "3/s"]

    fed(body, first=made(9))
    assert "set back from revision 9 to 3" in caplog.text


def test_the_same_number_with_another_content_is_another_revision() -> None:
    async def body(feed: PolicyFeed, storage: ShakyStorage, engine: Engine) -> None:
        storage.fail()
        await until(lambda: feed.state.is_stale)
        storage.restore(made(1, "3/s"))
        storage.recover()
        await until(lambda: engine.limits == ["5/s", "3/s"])

    fed(body)


def test_a_storage_that_is_empty_all_at_once_takes_no_limit_away() -> None:
    async def body(feed: PolicyFeed, storage: ShakyStorage, engine: Engine) -> None:
        storage.fail()
        await until(lambda: feed.state.is_stale)
        storage.restore(Revision(0))
        storage.recover()
        await until(lambda: feed.state.problems is not None)
        assert feed.state.revision == 1
        assert engine.revisions == [1]
        await storage.commit(made(1, "1/s"))
        await until(lambda: feed.state.is_current)
        assert engine.limits == ["5/s", "1/s"]

    fed(body)


def test_a_storage_with_nothing_in_it_is_a_policy_without_rules() -> None:
    async def body(feed: PolicyFeed, storage: ShakyStorage, engine: Engine) -> None:
        assert (feed.state.revision, feed.state.not_ready) == (0, ())
        assert [warning.message for warning in feed.state.warnings] == [
            "there are no rules: nothing is limited"
        ]

    fed(body, first=Revision(0))


def test_a_revision_that_is_no_policy_changes_nothing_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(feed: PolicyFeed, storage: ShakyStorage, engine: Engine) -> None:
        await storage.commit(made(2, limitt="1/s"))
        await until(lambda: feed.state.problems is not None)
        assert (feed.state.revision, feed.state.refused, feed.state.failures) == (1, 2, 1)
        asked = storage.asked
        await until(lambda: storage.asked > asked + 2)
        assert feed.state.failures == 1
        await storage.commit(made(3))
        await until(lambda: feed.state.is_current)
        assert engine.revisions == [1, 3]

    fed(body, longest_watch=0.001)
    assert caplog.text.count("cannot be put in force; in force stays revision 1") == 1


def test_a_policy_that_the_engine_refuses_is_told_like_a_bad_one() -> None:
    class Refusing(Engine):
        def __call__(self, policy: Any) -> int:
            if policy.revision > 1:
                raise OptionError("too much for me")
            return super().__call__(policy)

    async def main() -> None:
        storage, engine = ShakyStorage(made(1)), Refusing()
        async with feed_of(storage, engine) as feed:
            await storage.commit(made(2))
            await until(lambda: feed.state.problems is not None)
            assert "too much for me" in str((feed.state.problems or ("",))[0])
            assert feed.state.revision == 1

    asyncio.run(main())


def test_a_mistake_in_what_applies_is_not_hidden(caplog: pytest.LogCaptureFixture) -> None:
    class Mistaken(Engine):
        def __call__(self, policy: Any) -> int:
            if policy.revision > 1:
                raise ZeroDivisionError
            return super().__call__(policy)

    async def main() -> None:
        storage, engine = ShakyStorage(made(1)), Mistaken()
        async with feed_of(storage, engine):
            await storage.commit(made(2))
            await until(lambda: "because of a mistake" in caplog.text)

    asyncio.run(main())


def test_after_a_mistake_it_says_so_and_goes_on() -> None:
    class MistakenOnce(Engine):
        has_failed = False

        def __call__(self, policy: Any) -> int:
            if policy.revision == 2 and not self.has_failed:
                self.has_failed = True
                raise ZeroDivisionError
            return super().__call__(policy)

    async def main() -> None:
        storage, engine = ShakyStorage(made(1)), MistakenOnce()
        states: list[FeedState] = []
        async with feed_of(storage, engine, on_change=states.append) as feed:
            await storage.commit(made(2))
            await until(lambda: feed.state.revision == 2)
            assert feed.state.is_current
        assert [one.trouble for one in states if one.is_stale] == [
            "no longer followed, because of a mistake: ZeroDivisionError"
        ]

    asyncio.run(main())


class TestKept:
    def test_the_last_good_revision_is_kept(self, tmp_path: Path) -> None:
        kept = tmp_path / "state" / "kept.json"

        async def body(feed: PolicyFeed, storage: ShakyStorage, engine: Engine) -> None:
            assert revision_from_json(kept.read_bytes()) == made(1)
            await storage.commit(made(2))
            await until(lambda: revision_from_json(kept.read_bytes()) == made(2))
            await storage.commit(made(3, limitt="1/s"))
            await until(lambda: feed.state.problems is not None)
            assert revision_from_json(kept.read_bytes()) == made(2)

        fed(body, keep=kept)

    def test_it_is_what_a_service_starts_on_while_its_storage_is_down(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        kept = tmp_path / "kept.json"
        kept.write_bytes(made(4).to_json())

        async def main() -> None:
            storage, engine = ShakyStorage(made(4)), Engine()
            storage.fail()
            async with feed_of(storage, engine, keep=kept) as feed:
                assert (feed.state.revision, feed.state.is_stale) == (4, True)
                assert feed.state.not_ready == ()
                storage.recover()
                await until(lambda: feed.state.is_current)
                assert engine.revisions == [4]
                await storage.commit(made(5))
                await until(lambda: feed.state.revision == 5)

        asyncio.run(main())
        assert "starting on revision 4, the last good one" in caplog.text

    def test_it_is_what_a_service_starts_on_if_the_newest_is_no_policy(
        self, tmp_path: Path
    ) -> None:
        kept = tmp_path / "kept.json"
        kept.write_bytes(made(4).to_json())

        async def body(feed: PolicyFeed, storage: ShakyStorage, engine: Engine) -> None:
            assert (feed.state.revision, feed.state.refused, feed.state.is_stale) == (4, 5, False)
            assert feed.state.problems
            assert engine.revisions == [4]

        fed(body, first=made(5, limitt="1/s"), keep=kept)

    def test_it_is_what_a_service_starts_on_if_the_storage_was_emptied(
        self, tmp_path: Path
    ) -> None:
        kept = tmp_path / "kept.json"
        kept.write_bytes(made(4).to_json())

        async def body(feed: PolicyFeed, storage: ShakyStorage, engine: Engine) -> None:
            assert (feed.state.revision, feed.state.is_current) == (4, False)
            assert "there are no rules there any more" in str((feed.state.problems or ("",))[0])
            await storage.commit(made(1, "1/s"))
            await until(lambda: feed.state.is_current)
            assert engine.limits == ["5/s", "1/s"]

        fed(body, first=Revision(0), keep=kept)

    def test_what_another_process_is_about_to_keep_is_left_alone(self, tmp_path: Path) -> None:
        kept, other = tmp_path / "kept.json", tmp_path / ".kept.json.1-ab.new"
        old = tmp_path / ".kept.json.2-cd.new"
        for path in (other, old):
            path.write_bytes(b"half")
        os.utime(old, (1, 1))

        async def main() -> None:
            storage = ShakyStorage(made(1))
            storage.fail()
            async with feed_of(storage, Engine(), keep=kept):
                assert (other.exists(), old.exists()) == (True, False)

        asyncio.run(main())

    def test_without_one_nothing_is_in_force_and_it_is_said_why(self, tmp_path: Path) -> None:
        async def main() -> None:
            storage, engine = ShakyStorage(made(1)), Engine()
            storage.fail()
            async with feed_of(storage, engine, keep=tmp_path / "none") as feed:
                assert feed.state.not_ready == ("no policy is in force: nobody answers",)
                storage.recover()
                await until(lambda: feed.state.revision == 1)

        asyncio.run(main())

    @pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]"])
    def test_a_damaged_one_is_told_and_not_used(
        self, tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        kept = tmp_path / "kept.json"
        kept.write_bytes(content)

        async def main() -> None:
            storage = ShakyStorage(made(1))
            storage.fail()
            async with feed_of(storage, Engine(), keep=kept) as feed:
                assert feed.state.revision is None

        asyncio.run(main())
        assert "the policy that was kept cannot be used" in caplog.text

    def test_a_disk_that_cannot_keep_it_stops_nothing(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "file").write_text("")

        async def body(feed: PolicyFeed, storage: ShakyStorage, engine: Engine) -> None:
            assert feed.state.is_current

        fed(body, keep=tmp_path / "file" / "kept.json")
        assert "revision 1 cannot be kept" in caplog.text


class TestFile:
    def test_a_bad_file_is_told_and_a_good_one_taken(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        file = tmp_path / "policy.yaml"
        file.write_text(policy_text())
        caplog.set_level(logging.INFO)

        async def main() -> None:
            storage, engine = FileStorage(file, interval=0.001, pause=lambda _: None), Engine()
            async with feed_of(storage, engine) as feed:
                save(file, BAD)
                await until(lambda: feed.state.problems is not None)
                assert (feed.state.revision, feed.state.is_current) == (1, False)
                save(file, policy_text())
                await until(lambda: feed.state.is_current)
                assert engine.revisions == [1]
                save(file, policy_text("9/s"))
                await until(lambda: feed.state.revision == 2)

        asyncio.run(main())
        assert caplog.text.count("no policy now; revision 1 stays in force") == 1

    def test_a_bad_file_at_the_start_leaves_nothing_in_force(self, tmp_path: Path) -> None:
        file = tmp_path / "policy.yaml"
        file.write_text(BAD)

        async def main() -> None:
            storage = FileStorage(file, pause=lambda _: None)
            async with feed_of(storage, Engine()) as feed:
                assert feed.state.revision is None
                assert feed.state.problems
                assert "limitt" in feed.state.not_ready[0]

        asyncio.run(main())
