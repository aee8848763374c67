"""Where the files and sockets of a gateway are while it runs: one directory, for its owner only."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.control.files import replace_file
from headgate.gateway.processes.logs import GatewayError, NotNowError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headgate.gateway.envoy.values import Documents


LONGEST_SOCKET: Final = 107
"""How many bytes the kernel takes for the path of a socket."""

PREFIX: Final = "headgate-up-"
KEPT: Final = "rules.yaml"
"""The file that people may have edited, and what is kept beside it."""

_LOCK: Final = "lock"
_PRIVATE: Final = 0o700
_YOUNG: Final = 60.0
"""How many seconds old a directory must be to be taken for abandoned: another gateway may be about
to lock the one that it has just made."""

_LONGEST_NAME: Final = len("/grpc.sock.511")


class RunDirectory:
    """A directory that is ours alone: *path* is absolute. Files in it are for their owner only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if len(os.fsencode(path)) + _LONGEST_NAME > LONGEST_SOCKET:
            raise GatewayError(
                f"{path}: too long a path for sockets, which have at most {LONGEST_SOCKET} bytes; "
                "give a shorter one with --run-dir"
            )

    def place(self, name: str) -> Path:
        """The path of the file *name* in it."""
        return self.path / name

    def write(self, name: str, content: bytes) -> Path:
        """Make *content* that of the file *name*, as a whole, if it is not. Raises `NotNowError`.

        What is started again on a full disk finds its files as they were.
        """
        path = self.place(name)
        if not _has(path, content):
            self.write_all({name: content})
        return path

    def write_all(self, contents: Mapping[str, bytes]) -> None:
        """As `write` for several, in their order, once there is room for all of them: whatever is
        wrong then is wrong with all of them."""
        self._replace([*contents.items()])

    def _replace(self, files: list[tuple[str, bytes]]) -> None:
        """Each takes its place when all after it are on the disk, beside theirs."""
        if not files:
            return
        *before, (name, content) = files
        path = self.place(name)
        try:
            path.parent.mkdir(mode=_PRIVATE, exist_ok=True)
            replace_file(path, content, check=lambda: self._replace(before))
        except OSError as error:
            told = f"{path}: cannot be written: {error.strerror or error}"
            raise NotNowError(told) from error


def _has(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False


@contextmanager
def run_directory(wanted: str | None) -> Iterator[RunDirectory]:
    """The directory *wanted*, or one of its own, empty but for what is `KEPT`; so it is afterwards.

    Raises `GatewayError` if it cannot be used, has other files in it, or is another gateway's.
    """
    if wanted is None:
        clear_abandoned(Path(tempfile.gettempdir()))
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
    else:
        path = _opened(Path(wanted))
    try:
        directory = RunDirectory(path)
        with _locked(path):
            _clear(path)
            try:
                yield directory
            finally:
                _clear(path)
    finally:
        if wanted is None:
            shutil.rmtree(path, ignore_errors=True)


def clear_abandoned(parent: Path) -> None:
    """Remove the directories in *parent* of gateways that were killed, and could not do it."""
    for path in parent.glob(f"{PREFIX}*"):
        with suppress(OSError, GatewayError):
            lock = path.joinpath(_LOCK).lstat()
            if path.lstat().st_uid != os.getuid() or time.time() - lock.st_mtime < _YOUNG:
                continue
            with _locked(path):
                shutil.rmtree(path, ignore_errors=True)


def _opened(path: Path) -> Path:
    """*path* as it is used: there, ours, and with nothing in it that is not."""
    path = path.absolute()
    try:
        path.mkdir(mode=_PRIVATE, exist_ok=True)
        found = os.listdir(path)  # noqa: PTH208 - names are all that is asked for
    except OSError as error:
        raise GatewayError(f"run_dir {path}: cannot be used: {error.strerror or error}") from error
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise GatewayError(f"run_dir {path}: cannot be used: this user may not write there")
    if found and _LOCK not in found:
        told = "there are other files in it; expected a directory that is empty, or none"
        raise GatewayError(f"run_dir {path}: {told}")
    _make_private(path)
    return path


def _make_private(path: Path) -> None:
    """Let nobody else at the sockets in it, whoever was let into it before."""
    try:
        path.chmod(_PRIVATE)
    except OSError as error:
        told = "cannot be made private: it is another user's"
        raise GatewayError(f"run_dir {path}: {told}") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Have it alone, among all that know of this lock; the kernel gives it back for the dead."""
    descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            told = "another gateway runs there; each needs a run_dir of its own"
            raise GatewayError(f"run_dir {path}: {told}") from error
        yield
    finally:
        os.close(descriptor)


def _clear(path: Path) -> None:
    """Remove what is in it, but for the lock and what people may have edited."""
    for found in path.iterdir():
        if found.name == _LOCK or found.name.startswith(KEPT):
            continue
        if found.is_dir() and not found.is_symlink():
            shutil.rmtree(found, ignore_errors=True)
        else:
            with suppress(OSError):
                found.unlink()


# The files that Envoy reads, replaced as they change, and put back if they do not please.


BOOTSTRAP: Final = "bootstrap.json"


class DiscoveryFiles:
    """The documents of Envoy in *directory*. All that change are replaced, or none is."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._written: dict[str, bytes] = {}
        self._settled: dict[str, bytes] = {}

    def added(self, documents: Documents) -> int:
        """How many files of *documents* are not watched by Envoy yet."""
        return len(documents.discovered.keys() - self._settled.keys())

    def is_written(self, documents: Documents) -> bool:
        """Whether nothing is new in *documents*."""
        return not self._changed(_texts(documents))

    def write(self, documents: Documents) -> tuple[str, ...]:
        """Write what is new in *documents*; the names, in the order they were replaced.

        That is the order of *documents*: what a file names must be there. Raises `GatewayError`.
        """
        return self._replace(_texts(documents))

    def settle(self, documents: Documents) -> None:
        """*documents*, which are written, are good: remember them, and remove what there is
        besides, which Envoy does not need any more."""
        wanted = {BOOTSTRAP, *documents.discovered}
        self._remove([name for name in self._written if name not in wanted])
        self._settled = dict(self._written)

    def restore(self) -> None:
        """Back to what was settled. Raises `GatewayError`."""
        self._replace(self._settled)
        self._remove([name for name in self._written if name not in self._settled])

    def _replace(self, wanted: Mapping[str, bytes]) -> tuple[str, ...]:
        changed = self._changed(wanted)
        self._directory.write_all(changed)
        self._written |= changed
        return tuple(changed)

    def _changed(self, wanted: Mapping[str, bytes]) -> dict[str, bytes]:
        return {
            name: content for name, content in wanted.items() if self._written.get(name) != content
        }

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._directory.place(name).unlink(missing_ok=True)
            del self._written[name]


def _texts(documents: Documents) -> dict[str, bytes]:
    wanted = {BOOTSTRAP: documents.bootstrap, **documents.discovered}
    return {name: json.dumps(one, indent=1).encode() for name, one in wanted.items()}
