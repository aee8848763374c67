"""Files that are damaged, cut short, removed, in the way; memory that is full."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random, randrange

import pytest

from headgate.errors import StoreError
from headgate.limits import FixedWindow, Limit, SlidingWindowCounter, SlidingWindowLog, TokenBucket
from headgate.stores.operations import Check, Take
from headgate.stores.shm import ShmStore
from headgate.stores.shm import file as place
from headgate.stores.shm.file import path_of
from headgate.stores.shm.table import VERSION
from tests.support.shm_stores import fresh_store, fresh_url

LIMITS = (FixedWindow(100, 1e9), TokenBucket(100, 1e-6), SlidingWindowLog(100, 1e9))


def checks(cost: int = 1) -> tuple[Check, ...]:
    return tuple(Check(f"group {n}", "key", limit, cost) for n, limit in enumerate(LIMITS))


def left(store: ShmStore) -> list[int]:
    return [outcome.remaining for outcome in store.run(Take(checks(), consume=False))]


def file_of(store: ShmStore) -> Path:
    return path_of(store._files.address.name)


USING = """
from headgate.limits import FixedWindow
from headgate.stores.operations import Check, Take
from headgate.stores.shm import ShmStore
store, take = ShmStore({url!r}), Take((Check("group 0", "key", FixedWindow(100, 1e9)),))
store.run(take)
"""

DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "short": lambda path: path.write_bytes(path.read_bytes()[:100_000]),
    "zeros": lambda path: path.write_bytes(bytes(2 << 20)),
    "text": lambda path: path.write_text("not a store\n" * 10_000),
    "header": lambda path: path.write_bytes(b"headgate\xff" + path.read_bytes()[9:]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_made_anew_when_it_is_opened(damage: str) -> None:
    with fresh_store() as store:
        store.run(Take(checks(40)))
        path = file_of(store)
        store.close()
        DAMAGES[damage](path)
        again = ShmStore(f"shm://{store._files.address.name}?size=2MB")
        assert left(again) == [100, 100, 100]
        again.run(Take(checks(40)))
        assert left(again) == [60, 60, 60]
        again.close()


def test_to_cut_a_file_short_kills_who_uses_it_and_the_next_begins_anew() -> None:
    with fresh_store() as store:
        store.run(Take(checks(40)))
        url, path = f"shm://{store._files.address.name}?size=2MB", file_of(store)
        code = f"import os; os.truncate({str(path)!r}, 4096); store.run(take)"
        begun = USING.format(url=url)
        died = subprocess.run([sys.executable, "-c", begun + code], check=False)  # noqa: S603
        assert died.returncode == -signal.SIGBUS
        again = ShmStore(url)
        assert left(again) == [100, 100, 100]
        again.close()


def test_a_file_that_was_removed_is_noticed() -> None:
    with fresh_store() as store:
        store.run(Take(checks(40)))
        file_of(store).unlink()
        other = ShmStore(f"shm://{store._files.address.name}?size=2MB")
        other.run(Take(checks(10)))
        store._files.look_due = 0  # a second later
        assert left(store) == [90, 90, 90]
        other.close()


def test_a_file_that_was_moved_away_is_noticed() -> None:
    with fresh_store() as store:
        store.run(Take(checks(40)))
        other_name = file_of(store).with_name("moved")
        file_of(store).rename(other_name)
        try:
            other = ShmStore(f"shm://{store._files.address.name}?size=2MB")
            other.run(Take(checks(10)))
            store._files.look_due = 0  # a second later
            assert left(store) == [90, 90, 90]
            other.close()
        finally:
            other_name.unlink()


@pytest.mark.parametrize("old", [FixedWindow(100, 1e9), SlidingWindowCounter(100, 1e9)], ids=str)
def test_a_count_below_nothing_begins_anew_under_another_limit_too(old: Limit) -> None:
    with fresh_store() as store:
        store.run(Take((Check("group", "key", old, 40),)))
        path = file_of(store)
        image = path.read_bytes()
        assert image.count((40).to_bytes(8, "little")) == 1
        with path.open("r+b") as file:
            file.seek(image.index((40).to_bytes(8, "little")))
            file.write((-40).to_bytes(8, "little", signed=True))
        for limit in (SlidingWindowLog(100, 1e9), SlidingWindowLog(50, 1e9)):
            said = store.run(Take((Check("group", "key", limit),)))
        assert said[0].remaining == 48


def test_random_bytes_anywhere_never_do_worse_than_an_error() -> None:
    seed = randrange(2**32)
    random = Random(seed)
    with fresh_store(options="size=1MB") as store:
        for _ in range(20):
            store.run(Take(checks()))
        path = file_of(store)
        image = path.read_bytes()
        used = [at for at in range(0, len(image), 8) if any(image[at : at + 8])]
        for _ in range(150):
            damaged = bytearray(image)
            for _ in range(random.randrange(1, 20)):
                at = random.choice(used) + random.randrange(8)
                damaged[at] = random.randrange(256)
            path.write_bytes(damaged)
            store._files.current = None
            for _ in range(3):
                try:
                    store.run(Take(checks()))
                except StoreError:
                    pass
                except BaseException as error:
                    error.add_note(f"seed {seed}")
                    raise


def test_a_file_of_another_boot_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    with fresh_store() as store:
        store.run(Take(checks(40)))
        store.close()
        monkeypatch.setattr("headgate.stores.shm.table.this_boot", lambda: b"another boot ...")
        again = ShmStore(f"shm://{store._files.address.name}?size=2MB")
        assert left(again) == [100, 100, 100]
        again.close()


def test_layouts_of_other_numbers_are_files_of_their_own() -> None:
    with fresh_store() as store:
        assert file_of(store).name.endswith(f".v{VERSION}")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_memory_that_is_full_is_an_error_of_the_store() -> None:
    with fresh_url() as url:
        pid = os.fork()
        if not pid:
            status = 2
            try:
                resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
                ShmStore(url).run(Take(checks()))
            except StoreError as error:
                status = 0 if error.reason == "out_of_memory" else 1
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        with closing(ShmStore(url)) as store:
            assert left(store) == [100, 100, 100], "and it recovers by itself"


def test_more_than_there_is_is_refused_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with fresh_store() as store, monkeypatch.context() as patched:
        free = os.statvfs_result((4096, 4096, 100, 100, 100, 0, 0, 0, 0, 255))
        patched.setattr(os, "fstatvfs", lambda _: free)
        with pytest.raises(StoreError, match="No space") as caught:
            store.run(Take(checks()))
        assert caught.value.reason == "out_of_memory"
        patched.undo()
        assert left(store) == [100, 100, 100]


def test_a_directory_that_others_may_enter_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "SHARED_MEMORY", tmp_path)
    directory = tmp_path / f"headgate-{os.geteuid()}"
    directory.mkdir(mode=0o755)
    directory.chmod(0o755)
    with pytest.raises(StoreError, match="0700") as caught:
        ShmStore("shm://name?size=1MB").run(Take(checks()))
    assert caught.value.reason == "denied"
    directory.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    directory.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="0700"):
        ShmStore("shm://name?size=1MB").run(Take(checks()))


def test_a_link_in_place_of_the_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "SHARED_MEMORY", tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path_of("name").symlink_to(victim)
    with pytest.raises(StoreError) as caught:
        ShmStore("shm://name?size=1MB").run(Take(checks()))
    assert caught.value.reason == "denied"
    assert victim.read_text() == "precious"


def test_users_have_stores_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(place, "SHARED_MEMORY", tmp_path)
    mine = path_of("name")
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(StoreError):
        path_of("name")  # the directory that was just made does not belong to that user
    assert {found.name for found in tmp_path.iterdir()} == {mine.parent.name, "headgate-4711"}


def test_what_was_never_finished_is_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "SHARED_MEMORY", tmp_path)
    directory = path_of("name").parent
    left_behind, under_way = directory / ".new-old", directory / ".new-young"
    for path in (left_behind, under_way):
        path.write_bytes(b"x")
    os.utime(left_behind, (0, 0))
    with closing(ShmStore("shm://name?size=1MB")) as store:
        store.run(Take(checks()))
    assert {path.name for path in directory.iterdir()} == {f"name.v{VERSION}", ".new-young"}
