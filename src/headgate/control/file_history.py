"""The revisions of a policy file: a directory beside it, with one file for each.

    policy.yaml             the newest revision, as people see and edit it
    policy.yaml.history/
    ├── lock                held by the process that reads or writes
    ├── pending             a revision that is about to be written
    ├── 11.json             the author, the time, the document, and the text of the file
    └── 12.json

A change is prepared (`pending`), made (the policy file is replaced) and completed (`pending` gets
its number for a name). After a crash `pending` shows how far it came: if the file has its text, the
change was made.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from headgate.control.files import clear_leftovers, fingerprint_of, replace_file, sync_directory
from headgate.control.revision import (
    Revision,
    SourceError,
    UnknownRevisionError,
    revision_from_data,
)

try:
    import fcntl
except ImportError:  # pragma: no cover - there is none on Windows: one process at a time there
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headgate.control.revision import Change

LOG: Final = logging.getLogger("headgate.control")
LOCK_TIMEOUT: Final = 5.0
"""Seconds to wait for the lock."""
_LOCK_PAUSE: Final = 0.003
_ENTRY: Final = re.compile(r"([1-9][0-9]{0,15})\.json")


class FileHistory:
    """The revisions of the policy file *path*, of which the newest *most* are kept; 0 for none.

    Each has the text of the file. The directory is created by the first write. All methods but
    `locked` need the lock. Raises `OSError`.
    """

    def __init__(self, path: Path, *, most: int) -> None:
        self.directory = path.with_name(f"{path.name}.history")
        self._path = path
        self._most = most
        self._pending = self.directory / "pending"
        self._read: dict[Path, tuple[tuple[int, ...], Revision]] = {}

    @contextmanager
    def locked(self, *, to_write: bool) -> Iterator[None]:
        """Hold the lock against other processes and threads; for reading only if it exists.

        Raises `SourceError` if it is not released.
        """
        if to_write:
            self.directory.mkdir(mode=0o700, exist_ok=True)
        elif not self._most or not (self.directory / "lock").exists():
            yield
            return
        how = os.O_RDWR | os.O_CREAT if to_write else os.O_RDONLY
        descriptor = os.open(self.directory / "lock", how, 0o600)
        try:
            self._wait_for(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _wait_for(self, descriptor: int) -> None:
        if fcntl is None:  # pragma: no cover
            return
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    message = f"the lock was not released within {LOCK_TIMEOUT:g} seconds"
                    raise SourceError(f"{self.directory / 'lock'}: {message}") from error
            else:
                return
            time.sleep(_LOCK_PAUSE)

    @property
    def numbers(self) -> list[int]:
        """The numbers of all revisions that are kept, newest first."""
        try:
            names = [path.name for path in self.directory.iterdir()] if self._most else []
        except FileNotFoundError:
            return []
        found = [match for match in map(_ENTRY.fullmatch, names) if match]
        return sorted((int(match[1]) for match in found), reverse=True)

    def newest(self) -> Revision | None:
        """Return the newest revision that can be read."""
        return next((one for one in map(self._readable, self.numbers) if one), None)

    def at(self, number: int) -> Revision:
        """Return the revision *number*. Raises `UnknownRevisionError`."""
        revision = self._readable(number)
        if revision is None:
            raise UnknownRevisionError(f"there is no revision {number} in {self.directory}")
        return revision

    def changes(self, *, before: int | None, most: int) -> list[tuple[int, Change]]:
        """Return number and change of the newest below *before*."""
        older = (number for number in self.numbers if before is None or number < before)
        readable = (one for one in map(self._readable, older) if one is not None)
        return [(one.number, one.change) for one in islice(readable, most)]

    def prepare(self, revision: Revision) -> None:
        """Record a revision that is about to be written."""
        clear_leftovers(self._pending)
        text = json.dumps((revision.text or b"").decode()).encode("ascii")
        content = b'{"revision":%b,"text":%b}' % (revision.to_json(), text)
        replace_file(self._pending, content)
        self._remember(self._pending, revision)

    def complete(self) -> None:
        """Record that the prepared revision was written."""
        revision = self.pending()
        if revision is None:
            return
        file = self._file_of(revision.number)
        self._pending.replace(file)
        self._remember(file, revision)
        sync_directory(self.directory)
        for number in self.numbers[self._most :]:
            with suppress(OSError):  # one too many does no harm
                self._file_of(number).unlink(missing_ok=True)

    def abandon(self) -> None:
        """Drop the prepared revision, which was not written."""
        self._pending.unlink(missing_ok=True)

    def pending(self) -> Revision | None:
        """Return the prepared revision, neither completed nor abandoned; None if there is none."""
        return self._revision_in(self._pending)

    def _file_of(self, number: int) -> Path:
        return self.directory / f"{number}.json"

    def _readable(self, number: int) -> Revision | None:
        return self._revision_in(self._file_of(number))

    def _remember(self, path: Path, revision: Revision) -> Revision:
        """Cache one revision, the newest as a rule: to parse it keeps other threads waiting."""
        self._read = {path: (_stamp(path), revision)}
        return revision

    def _revision_in(self, path: Path) -> Revision | None:
        """Return the revision in *path*; None if there is none, or it is damaged."""
        if not self._most:
            return None
        try:
            # Read once: other threads may replace it.
            known = self._read.get(path)
            if known is not None and known[0] == _stamp(path):
                return known[1]
            data = json.loads(path.read_bytes())
            text = data["text"].encode()
            fingerprint = fingerprint_of((self._path, text))
            revision = revision_from_data(data["revision"])
            return self._remember(path, replace(revision, fingerprint=fingerprint, text=text))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            LOG.warning("%s: not a revision, ignored: %s", path, error)
        except SourceError as error:
            LOG.warning("%s: ignored: %s", path, error)
        return None


def _stamp(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return (found.st_ino, found.st_mtime_ns, found.st_size)
