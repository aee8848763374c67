"""What every source of policies promises: one suite, to be run over each.

A subclass says how to open one. Where several can look at the same place, `another` opens a second.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from headgate.control.revision import Change, ConflictError, Revision, UnknownRevisionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headgate.control.source import PolicySource

T = TypeVar("T")

SOON = 60.0
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


def following(source: PolicySource, number: int) -> Revision:
    """Watch *source* until the newest is the revision *number*."""
    deadline = time.monotonic() + SOON
    while (newest := source.head()).number != number:
        left = deadline - time.monotonic()
        assert left > 0, f"the newest is revision {newest.number}"
        source.wait(newest, left)
    return newest


@contextmanager
def in_thread(function: Callable[..., T], *arguments: Any) -> Iterator[Future[T]]:
    """Run *function* in another thread; the future is its result."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(function, *arguments)


class PolicySourceContract:
    """The suite. Each test has a source with nothing in it."""

    def opened(self, place: Path) -> AbstractContextManager[PolicySource]:
        """A source in a place that is new for each *place*, and the same for the same."""
        raise NotImplementedError

    @pytest.fixture
    def source(self, tmp_path: Path) -> Iterator[PolicySource]:
        with self.opened(tmp_path / "policy.yaml") as source:
            yield source

    def test_a_new_source_is_at_revision_0_without_rules(self, source: PolicySource) -> None:
        head = source.head()
        assert (head.number, dict(head.document)) == (0, {"version": 1, "rules": []})
        assert list(source.history()) == []

    def test_what_is_committed_is_the_head_and_can_be_had_again(self, source: PolicySource) -> None:
        for number in (1, 2, 3):
            source.commit(revision(number, *"abc"[:number]))
        assert source.head() == revision(3, *"abc")
        assert source.at(3) == revision(3, *"abc")
        assert source.at(1) == revision(1, "a")

    @pytest.mark.parametrize("number", [0, 1, 3, 100])
    def test_only_the_next_number_can_be_committed(self, source: PolicySource, number: int) -> None:
        source.commit(revision(1, "a"))
        with pytest.raises(ConflictError):
            source.commit(revision(number, "b"))
        assert source.head() == revision(1, "a")
        assert [one for one, _ in source.history()] == [1]

    def test_of_writers_at_the_same_time_one_wins(self, source: PolicySource) -> None:
        source.commit(revision(1, "a"))

        def write(n: int) -> bool:
            try:
                source.commit(revision(2, f"w{n}", author=f"w{n}"))
            except ConflictError:
                return False
            return True

        with ThreadPoolExecutor(5) as pool:
            ends = list(pool.map(write, range(5)))
        assert sorted(ends) == [False, False, False, False, True]
        winner = ends.index(True)
        assert source.head() == revision(2, f"w{winner}", author=f"w{winner}")

    @pytest.mark.parametrize("number", [-1, 0, 2, 10**12])
    def test_a_revision_that_is_not_there_is_an_error(
        self, source: PolicySource, number: int
    ) -> None:
        source.commit(revision(1, "a"))
        with pytest.raises(UnknownRevisionError):
            source.at(number)

    def test_the_history_is_the_newest_first_and_can_be_gone_through(
        self, source: PolicySource
    ) -> None:
        for number in range(1, 8):
            source.commit(revision(number, f"r{number}"))
        every = list(source.history())
        assert every == [(n, revision(n).change) for n in range(7, 0, -1)]
        assert list(source.history(most=3)) == every[:3]
        assert list(source.history(before=5, most=3)) == every[3:6]
        assert list(source.history(before=1)) == []

    def test_a_wait_ends_when_the_newest_is_another(self, source: PolicySource) -> None:
        source.commit(revision(1, "a"))
        source.wait(Revision(0), SOON)  # what is there is another already
        with in_thread(source.wait, source.head(), SOON) as waiting:
            source.commit(revision(2, "b"))
            waiting.result(SOON)
        assert source.head() == revision(2, "b")

    def test_a_wait_ends_when_it_is_woken_or_its_time_is_over(self, source: PolicySource) -> None:
        source.commit(revision(1, "a"))
        newest = source.head()
        source.wait(newest, 0.01)
        source.wake()
        source.wait(newest, SOON)
        with in_thread(source.wait, newest, SOON) as waiting:
            source.wake()
            waiting.result(SOON)

    def test_a_watch_goes_on_to_the_newest(self, source: PolicySource) -> None:
        with in_thread(following, source, 5) as watching:
            for number in range(1, 6):
                source.commit(revision(number, f"r{number}"))
            assert watching.result(SOON) == revision(5, "r5")
        with in_thread(following, source, 6) as watching:
            source.commit(revision(6, "last"))
            assert watching.result(SOON) == revision(6, "last")

    def test_texts_of_all_kinds_come_back(self, source: PolicySource) -> None:
        odd = document("a")
        odd["rules"][0]["description"] = "été \N{SNOWMAN} 'quoted' \"twice\" # no comment\n- x"
        odd["rules"][0]["match"] = {"headers": {"x": ["yes", "1e3", "010", "null", "~", "1.50"]}}
        change = Change("ada \N{SNOWMAN}", 1, "put rule a", "why: \u2603")
        source.commit(Revision(1, odd, {"a": 1}, change))
        head = source.head()
        assert (dict(head.document), head.change) == (odd, change)


class SharedPolicySourceContract(PolicySourceContract):
    """For sources that several can have open: nodes of a fleet, workers of a machine."""

    def test_another_sees_what_one_commits(self, tmp_path: Path) -> None:
        place = tmp_path / "policy.yaml"
        with self.opened(place) as one, self.opened(place) as other:
            one.commit(revision(1, "a"))
            assert other.head() == revision(1, "a")
            with in_thread(following, other, 2) as watching:
                one.commit(revision(2, "b"))
                assert watching.result(SOON) == revision(2, "b")

    def test_another_cannot_overwrite_what_it_has_not_seen(self, tmp_path: Path) -> None:
        place = tmp_path / "policy.yaml"
        with self.opened(place) as one, self.opened(place) as other:
            one.commit(revision(1, "a"))
            assert (other.head()).number == 1
            one.commit(revision(2, "b"))
            with pytest.raises(ConflictError):
                other.commit(revision(2, "c"))
            assert other.head() == revision(2, "b")

    def test_what_was_committed_is_there_when_it_is_opened_again(self, tmp_path: Path) -> None:
        place = tmp_path / "policy.yaml"
        with self.opened(place) as one:
            one.commit(revision(1, "a"))
            one.commit(revision(2, "b"))
        with self.opened(place) as again:
            assert again.head() == revision(2, "b")
            assert again.at(1) == revision(1, "a")
            again.commit(revision(3, "c"))
