"""Files change in every way that people and programs change them, while requests go on."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from headgate.control import PolicyFiles, PolicyWatcher
from headgate.engine.request import Request
from headgate.rule_engine import AsyncRuleEngine, RuleEngine
from tests.support.servers import RedisServer, is_installed, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headgate.engine.verdict import Verdict

    Save = Callable[[Path, str], None]

INTERVAL = 0.02
BAD = "version: 1\nrules:\n  - id: pages\n    limitt: 5/minute\n"


def policy_text(limit: int, *, others: int = 1_000_000, extra: str = "") -> str:
    """`pages` admits *limit* a day to each address, `load` *others* to the traffic."""
    return f"""
version: 1
rules:
  - id: pages
    match: {{endpoint: /pages}}
    key_by: ip
    limit: {limit}/day sliding_window_log
  - id: load
    match: {{endpoint: /load}}
    key_by: global
    algorithm: token_bucket
    capacity: {others}
    refill_rate_per_sec: 1000
{extra}"""


PAGES = Request("GET", "/pages", peer="192.0.2.1")
LOAD = Request("GET", "/load", peer="192.0.2.2")


class Setting:
    """An engine that obeys a path, and threads that keep asking it."""

    def __init__(self, path: Path, store: str = "memory://") -> None:
        self.files = PolicyFiles(path)
        loaded = self.files.load()
        self.engine = RuleEngine(loaded.policy, store=store, namespace=str(path))
        self.watcher = PolicyWatcher(
            self.files, self.engine.replace, interval=INTERVAL, in_force=loaded
        )
        self.revisions: list[list[int]] = []
        self.refused = 0
        self.failures: list[BaseException] = []
        self._is_over = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            with self.watcher:
                yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()
            self.engine.close()

    def _ask(self) -> None:
        seen: list[int] = []
        self.revisions.append(seen)
        while not self._is_over.is_set():
            try:
                verdict = self.engine.check(LOAD)
            except BaseException as error:
                self.failures.append(error)
                raise
            seen.append(verdict.revision)
            self.refused += not verdict or verdict.source != "store"
            time.sleep(0.001)

    def expect(self) -> int:
        """Wait for what the files say now to be in force; its revision."""
        fingerprint = self.files.load().fingerprint
        wait_until(lambda: self._is_at(fingerprint), "the files are in force", every=0.005)
        revision = self.watcher.state.revision
        assert revision is not None
        return revision

    def _is_at(self, fingerprint: str) -> bool:
        state = self.watcher.state
        return state.is_current and state.fingerprint == fingerprint

    def expect_trouble(self, word: str) -> int:
        """Wait for *word* to be among the problems; the revision that is still in force."""

        def is_told() -> bool:
            return word in str(self.watcher.state.problems)

        wait_until(is_told, f"the problem of {word} is told", every=0.005)
        revision = self.watcher.state.revision
        assert revision is not None
        return revision

    def hit(self, times: int = 1) -> Verdict:
        for _ in range(times):
            verdict = self.engine.check(PAGES)
        return verdict


def left(verdict: Verdict) -> int:
    assert verdict.decision is not None
    return verdict.decision.remaining


def replaced(file: Path, text: str) -> None:
    fresh = file.with_name(".fresh")
    fresh.write_text(text)
    fresh.replace(file)


def rewritten(file: Path, text: str) -> None:
    with file.open("w") as opened:
        for line in text.splitlines(keepends=True):
            opened.write(line)
            opened.flush()


def saved_as_vim_does(file: Path, text: str) -> None:
    backup = file.with_name(file.name + "~")
    (file.parent / "4913").touch()
    (file.parent / "4913").unlink()
    if file.exists():
        file.rename(backup)
    with file.open("x") as opened:
        opened.write(text)
    backup.unlink(missing_ok=True)


def mounted_as_kubernetes_does(file: Path, text: str) -> None:
    """`rules.yaml` leads to `..data/rules.yaml`, and `..data` to a directory that is always new."""
    volume = file.parent
    version = volume / f"..{time.time_ns()}"
    version.mkdir()
    (version / file.name).write_text(text)
    old = volume / "..data"
    previous = old.resolve() if old.is_symlink() else None
    (volume / "..data_tmp").symlink_to(version.name)
    (volume / "..data_tmp").replace(old)
    if previous is None:
        file.symlink_to(f"..data/{file.name}")
    else:
        (previous / file.name).unlink()
        previous.rmdir()


WAYS = (replaced, rewritten, saved_as_vim_does, mounted_as_kubernetes_does)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def limits_follow(setting: Setting, save: Callable[[str], None]) -> None:
    """Raise a limit, break the file, lower it, raise it again: nothing that was used is lost."""
    with setting.running():
        assert left(setting.hit(times=6)) == 4

        save(policy_text(14))
        raised = setting.expect()
        verdict = setting.hit()
        assert (verdict.revision, left(verdict)) == (raised, 14 - 7)

        save(BAD)
        assert setting.expect_trouble("limitt") == raised
        verdict = setting.hit()
        assert (verdict.revision, left(verdict)) == (raised, 14 - 8)

        save(policy_text(8))
        lowered = setting.expect()
        assert not setting.hit()

        save(policy_text(20))
        raised_again = setting.expect()
        verdict = setting.hit()
        assert (verdict.revision, left(verdict)) == (raised_again, 20 - 9)
        assert 0 < raised < lowered < raised_again
    traffic_was_unharmed(setting)


def traffic_was_unharmed(setting: Setting) -> None:
    assert setting.failures == []
    assert setting.refused == 0
    assert all(seen and seen == sorted(seen) for seen in setting.revisions)


@pytest.mark.parametrize("of_directory", [False, True], ids=["file", "directory"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_limits_follow_the_file_and_counters_stay(
    way: Save, tmp_path: Path, *, of_directory: bool
) -> None:
    file = tmp_path / "rules.yaml"
    way(file, policy_text(10))
    setting = Setting(tmp_path if of_directory else file)
    limits_follow(setting, lambda text: way(file, text))


@pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")
def test_counters_in_redis_stay(server: RedisServer, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    replaced(file, policy_text(10))
    limits_follow(Setting(file, server.url), lambda text: replaced(file, text))


def test_files_come_to_a_directory_and_go(tmp_path: Path) -> None:
    replaced(tmp_path / "10.yaml", policy_text(10))
    more = "version: 1\nrules: [{id: more, match: {endpoint: /pages}, key_by: ip, limit: 3/day}]"
    setting = Setting(tmp_path)
    with setting.running():
        setting.hit(times=2)
        replaced(tmp_path / "20.yaml", more)
        setting.expect()
        assert [one.rule.id for one in setting.hit().rules] == ["pages", "more"]
        (tmp_path / "20.yaml").unlink()
        setting.expect()
        assert left(setting.hit()) == 10 - 4
        (tmp_path / "10.yaml").unlink()
        setting.expect_trouble("no policy files")
        assert left(setting.hit()) == 10 - 5
    traffic_was_unharmed(setting)


def test_a_thousand_changes_in_a_row_end_with_the_last(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    replaced(file, policy_text(10))
    setting = Setting(file)
    with setting.running():
        for number in range(1_000):
            replaced(file, BAD if number % 7 == 0 else policy_text(10 + number))
        wait_until(lambda: left(setting.engine.peek(PAGES)) == 1_009, "the last is in force")
    traffic_was_unharmed(setting)


def test_a_signal_has_the_file_read_at_once(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    replaced(file, policy_text(10))
    files = PolicyFiles(file)
    loaded = files.load()
    engine = RuleEngine(loaded.policy)
    told = threading.Event()
    watcher = PolicyWatcher(
        files, engine.replace, interval=3600, in_force=loaded, on_change=lambda _: told.set()
    )
    before = signal.signal(signal.SIGHUP, lambda *_: watcher.check_soon())
    try:
        with watcher:
            replaced(file, policy_text(14))
            signal.raise_signal(signal.SIGHUP)
            assert told.wait(timeout=60)
            assert left(engine.check(PAGES)) == 13
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_event_loop_goes_on_while_files_are_read(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    replaced(file, policy_text(10))
    files = PolicyFiles(file)
    loaded = files.load()

    async def main() -> list[int]:
        engine = AsyncRuleEngine(loaded.policy)
        watcher = PolicyWatcher(files, engine.replace, interval=INTERVAL, in_force=loaded)
        seen: list[int] = []
        async with watcher, asyncio.timeout(60):
            assert left(await engine.check(PAGES)) == 9
            for number in range(1, 4):
                replaced(file, policy_text(10 * number + 10))
                while not seen or seen[-1] < number:
                    seen.append((await engine.check(LOAD)).revision)
                    await asyncio.sleep(0.001)
            assert left(await engine.check(PAGES)) == 40 - 2
        await engine.aclose()
        return seen

    seen = asyncio.run(main())
    assert seen == sorted(seen)
