"""The private directory with the files and sockets of a running gateway."""

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
from headgate.gateway.processes.logs import GatewayError, TemporaryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headgate.gateway.envoy.values import Documents


LONGEST_SOCKET: Final = 107
"""Bytes of the longest path of a socket."""

PREFIX: Final = "headgate-up-"
RULES_FILE: Final = "rules.yaml"
"""The rules file of the demo, which users may edit. It is kept."""

_LOCK: Final = "lock"
_PRIVATE: Final = 0o700
_YOUNG: Final = 60.0
"""Age in seconds of an abandoned directory: another gateway may be about to lock a new one."""

_LONGEST_NAME: Final = len("/grpc.sock.511")


class RunDirectory:
    """A private directory at the absolute *path*; only its owner can read the files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if len(os.fsencode(path)) + _LONGEST_NAME > LONGEST_SOCKET:
            raise GatewayError(
                f"{path}: the path is too long for sockets, which allow {LONGEST_SOCKET} bytes; "
                "pass a shorter one with --run-dir"
            )

    def place(self, name: str) -> Path:
        """The path of the file *name*."""
        return self.path / name

    def write(self, name: str, content: bytes) -> Path:
        """Write *content* to the file *name* atomically, if it differs. Raises `TemporaryError`.

        On a full disk the file before stays.
        """
        path = self.place(name)
        if not _has(path, content):
            self.write_all({name: content})
        return path

    def write_all(self, contents: Mapping[str, bytes]) -> None:
        """Write several files in order, all or none of them. Raises `TemporaryError`."""
        self._replace([*contents.items()])

    def _replace(self, files: list[tuple[str, bytes]]) -> None:
        """Replace each file after those behind it are on the disk under temporary names."""
        if not files:
            return
        *before, (name, content) = files
        path = self.place(name)
        try:
            path.parent.mkdir(mode=_PRIVATE, exist_ok=True)
            replace_file(path, content, check=lambda: self._replace(before))
        except OSError as error:
            message = f"{path}: cannot write: {error.strerror or error}"
            raise TemporaryError(message) from error


def _has(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False


@contextmanager
def run_directory(place: str | None) -> Iterator[RunDirectory]:
    """Open the directory *place*, or a temporary one, and clear all but the rules file at the end.

    Raises `GatewayError` if it is unusable, has other files, or belongs to another gateway.
    """
    if place is None:
        clear_abandoned(Path(tempfile.gettempdir()))
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
    else:
        path = _prepared(Path(place))
    try:
        directory = RunDirectory(path)
        with _locked(path):
            _clear(path)
            try:
                yield directory
            finally:
                _clear(path)
    finally:
        if place is None:
            shutil.rmtree(path, ignore_errors=True)


def clear_abandoned(parent: Path) -> None:
    """Remove the directories in *parent* that killed gateways left."""
    for path in parent.glob(f"{PREFIX}*"):
        with suppress(OSError, GatewayError):
            lock = path.joinpath(_LOCK).lstat()
            if path.lstat().st_uid != os.getuid() or time.time() - lock.st_mtime < _YOUNG:
                continue
            with _locked(path):
                shutil.rmtree(path, ignore_errors=True)


def _prepared(path: Path) -> Path:
    """Create *path*, or check that it is private and has no other files."""
    path = path.absolute()
    try:
        path.mkdir(mode=_PRIVATE, exist_ok=True)
        found = os.listdir(path)  # noqa: PTH208 - only names are needed
    except OSError as error:
        raise GatewayError(f"run_dir {path}: cannot use it: {error.strerror or error}") from error
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise GatewayError(f"run_dir {path}: this user cannot write there")
    if found and _LOCK not in found:
        message = "it contains other files; expected an empty or a new directory"
        raise GatewayError(f"run_dir {path}: {message}")
    _make_private(path)
    return path


def _make_private(path: Path) -> None:
    """Remove the access of other users to the sockets."""
    try:
        path.chmod(_PRIVATE)
    except OSError as error:
        message = "it belongs to another user"
        raise GatewayError(f"run_dir {path}: {message}") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on it; the kernel releases it when the process ends."""
    descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = "another gateway uses it; each needs its own run_dir"
            raise GatewayError(f"run_dir {path}: {message}") from error
        yield
    finally:
        os.close(descriptor)


def _clear(path: Path) -> None:
    """Remove its content, except the lock and the rules file."""
    for found in path.iterdir():
        if found.name == _LOCK or found.name.startswith(RULES_FILE):
            continue
        if found.is_dir() and not found.is_symlink():
            shutil.rmtree(found, ignore_errors=True)
        else:
            with suppress(OSError):
                found.unlink()


# The files of Envoy.


BOOTSTRAP: Final = "bootstrap.json"


class DiscoveryFiles:
    """The documents of Envoy in *directory*, replaced all or none."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._written: dict[str, bytes] = {}
        self._settled: dict[str, bytes] = {}

    def added(self, documents: Documents) -> int:
        """The number of files of *documents* that Envoy does not watch yet."""
        return len(documents.discovered.keys() - self._settled.keys())

    def is_written(self, documents: Documents) -> bool:
        """True if *documents* contain nothing new."""
        return not self._changed(_texts(documents))

    def write(self, documents: Documents) -> tuple[str, ...]:
        """Write the changed files and return their names, in the order of *documents*.

        A file must exist before another names it. Raises `GatewayError`.
        """
        return self._replace(_texts(documents))

    def settle(self, documents: Documents) -> None:
        """Mark *documents* as accepted, and remove the other files."""
        listed = {BOOTSTRAP, *documents.discovered}
        self._remove([name for name in self._written if name not in listed])
        self._settled = dict(self._written)

    def restore(self) -> None:
        """Back to what was settled. Raises `GatewayError`."""
        self._replace(self._settled)
        self._remove([name for name in self._written if name not in self._settled])

    def _replace(self, files: Mapping[str, bytes]) -> tuple[str, ...]:
        changed = self._changed(files)
        self._directory.write_all(changed)
        self._written |= changed
        return tuple(changed)

    def _changed(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        return {
            name: content for name, content in files.items() if self._written.get(name) != content
        }

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._directory.place(name).unlink(missing_ok=True)
            del self._written[name]


def _texts(documents: Documents) -> dict[str, bytes]:
    files = {BOOTSTRAP: documents.bootstrap, **documents.discovered}
    return {name: json.dumps(one, indent=1).encode() for name, one in files.items()}
