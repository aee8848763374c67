"""A policy in a file or a directory of files: what people edit by hand, or through the admin API.

The file is the newest revision. A change by hand becomes a revision of the author `file` as soon as
the source is read; a file that is invalid changes nothing and raises `InvalidFileError`. Writing is
atomic, and the revisions before are kept in a directory beside the file (`file_history`).
"""

from __future__ import annotations

import errno
import logging
import os
import queue
import stat
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.control.documents import parse_document, summary_of, versions_after
from headgate.control.file_history import FileHistory
from headgate.control.files import (
    PolicyFiles,
    clear_leftovers,
    fingerprint_of,
    place_of,
    replace_file,
)
from headgate.control.revision import (
    Change,
    ConflictError,
    ReadOnlyError,
    Revision,
    SourceError,
    UnknownRevisionError,
    collector_paused,
)
from headgate.control.source import MOST_REVISIONS
from headgate.control.yaml_text import edited_text, text_of
from headgate.policy.problems import PolicyError
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headgate.control.files import Stamp, Texts
    from headgate.control.revision import Parsed
    from headgate.policy.problems import Problem

    Parse = Callable[[Sequence[tuple[str, bytes]]], tuple[Mapping[str, Any], Parsed]]

LOG: Final = logging.getLogger("headgate.control")
BY_HAND: Final = "file"
"""The author of a change made to the file by hand."""
INTERVAL: Final = 0.1
"""Seconds between two looks at the files."""
_QUIET: Final = 0.1
"""Seconds that a file must be unchanged before it is read: it may be half written.

More than the step of any common file system's clock, so that a change after the reading is seen.
"""
_ATTEMPTS: Final = 20
_FAILED: Final = 2
"""The length of the stamp of a file whose status cannot be read."""
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_ANY_WRITE: Final = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class InvalidFileError(SourceError):
    """The policy file is invalid or missing. `problems` lists everything that is wrong.

    *is_lasting*: the content itself is wrong, so reading it again does not help.
    """

    def __init__(self, problems: Sequence[Problem], *, is_lasting: bool = False) -> None:
        self.problems = tuple(problems)
        self.is_lasting = is_lasting
        super().__init__("\n".join(str(problem) for problem in self.problems))


class FileSource:
    """A `PolicySource` in the policy file *path* (YAML; JSON if its name ends so).

    Safe among threads and processes of one machine. A file that *may_be_missing* is an empty policy
    until something is written; else its absence is an error. *read_only*: nothing is written, and
    changes by hand are numbered for this process alone. A directory of files is always read-only.
    Without *has_history* the revisions beside the file are not read either. *parse* reads the
    texts. *interval* is the time between two looks at the files, in seconds.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        may_be_missing: bool = False,
        read_only: bool = False,
        has_history: bool = True,
        parse: Parse = parse_document,
        most: int = MOST_REVISIONS,
        interval: float = INTERVAL,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.files = PolicyFiles(path)
        self.place = place_of(self.files.path)
        self._may_be_missing = may_be_missing
        self._read_only = read_only or not has_history
        self._history = FileHistory(self.files.path, most=most if has_history else 0)
        self._parse = parse
        self._interval = interval
        self._pause = pause
        self._unrecorded: Revision | None = None
        self._known: tuple[Stamp, Revision | InvalidFileError] | None = None
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()

    def head(self) -> Revision:
        """Return the newest revision. Raises `InvalidFileError`, `SourceError`."""
        stamp, known = self.files.stamp(), self._known
        if known is None or known[0] != stamp:
            found: Revision | InvalidFileError
            try:
                with _translated(self.place), collector_paused():
                    found = self._newest()
            except InvalidFileError as error:
                if not error.is_lasting:
                    raise
                found = error
            known = stamp, found
            # A file that has just been written may be written again without looking different.
            self._known = None if _is_fresh(stamp) else known
        if isinstance(known[1], InvalidFileError):
            raise known[1].with_traceback(None)
        return known[1]

    def wait(self, known: Revision, timeout: float) -> None:
        """Block until the file has another content than *known*. Raises `InvalidFileError`."""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            with suppress(queue.Empty):
                self._wakes.get(timeout=min(self._interval, left))
                return
            if self.head() != known:
                return

    def wake(self) -> None:
        """End a `wait`."""
        self._wakes.put(None)

    def commit(self, revision: Revision) -> None:
        """Make *revision* the newest by rewriting the file.

        Raises `ConflictError`; `ReadOnlyError` also while the file, changed by hand, is invalid:
        an edit by hand is not overwritten.
        """
        history = self._history
        if self._read_only or self.files.path.is_dir():
            what = "a directory of files" if self.files.path.is_dir() else "opened for reading only"
            raise ReadOnlyError(f"{self.place}: this is {what}; edit the rules by hand")
        if not self._may_be_written():
            raise ReadOnlyError(f"{self.place}: the file is read-only; chmod u+w allows changes")
        self._known = None
        with _translated(self.place, is_change=True):
            try:
                with history.locked(to_write=True):
                    newest = self._before(revision)
                # Without the lock: among thousands of rules this takes seconds.
                text = self._text_after(newest, revision)
                with history.locked(to_write=True):
                    self._before(revision)
                    fingerprint = fingerprint_of((self.files.path, text))
                    self._write(replace(revision, fingerprint=fingerprint, text=text))
            except InvalidFileError as error:
                hint = "The policy file is invalid, so the change was not applied. Fix it first."
                raise ReadOnlyError(f"{self.place}: {hint}\n{error}") from error

    def _before(self, revision: Revision) -> Revision:
        """Return the newest revision. Raises `ConflictError` unless *revision* is the next one."""
        newest = self._settled(is_recorded=True)
        if newest.number != revision.number - 1:
            raise ConflictError(f"{self.place}: the policy is at revision {newest.number}")
        return newest

    def _text_after(self, newest: Revision, revision: Revision) -> bytes:
        """Return the text of the file for *revision*, with the comments and the style it has."""
        if self._target.name.lower().endswith(".json"):
            return text_of(revision.document, is_yaml=False)
        texts = self._read()
        if texts is None:
            return text_of(revision.document, is_yaml=True)
        return edited_text(texts.whole, newest.document, revision.document)

    def at(self, number: int) -> Revision:
        """Return the revision *number*. Raises `UnknownRevisionError`."""
        newest = self.head()
        if newest.number == number != 0:
            return newest
        if number > newest.number:
            raise UnknownRevisionError(f"{self.place}: there is no revision {number}")
        with _translated(self.place):
            return self._history.at(number)

    def history(self, *, before: int | None = None, most: int = 50) -> Sequence[tuple[int, Change]]:
        """Return number and change of the newest revisions below *before*."""
        newest = self.head()
        with _translated(self.place):
            found = self._history.changes(before=before, most=most)
        is_listed = newest.number > 0 and (before is None or newest.number < before)
        if is_listed and newest.number not in dict(found):
            found = [(newest.number, newest.change), *found]
        return found[:most]

    def close(self) -> None:
        """Nothing is held open."""

    @property
    def _target(self) -> Path:
        """The file itself, links followed: it is replaced, not the link."""
        return Path(os.path.realpath(self.files.path))

    def _newest(self) -> Revision:
        """Return the newest revision, recorded in the history if that is possible."""
        history = self._history
        if self._is_writable():
            try:
                with history.locked(to_write=True):
                    return self._settled(is_recorded=True)
            except OSError as error:
                LOG.warning("%s: the history cannot be written: %s", self.place, error)
        with history.locked(to_write=False):
            return self._settled(is_recorded=False)

    def _is_writable(self) -> bool:
        if self._read_only or not self.files.path.is_file():
            return False
        return os.access(self.files.path.parent, os.W_OK) and self._may_be_written()

    def _may_be_written(self) -> bool:
        try:
            return bool(self._target.stat().st_mode & _ANY_WRITE)
        except FileNotFoundError:
            return True

    def _settled(self, *, is_recorded: bool) -> Revision:
        """Return the newest revision, after a pending change and changes by hand."""
        history, texts = self._history, self._texts()
        fingerprint = None if texts is None else texts.fingerprint
        pending = history.pending()
        if pending is not None:
            if pending.fingerprint == fingerprint:
                if is_recorded:
                    history.complete()
                return pending
            if is_recorded:
                history.abandon()
        newest = history.newest()
        if texts is None:
            return self._missing(newest)
        last = max([0, *history.numbers])
        if newest is not None and newest.fingerprint == fingerprint and newest.number == last:
            return newest
        revision = self._adopted(texts, newest, last)
        if is_recorded and revision.number > last:
            history.prepare(revision)
            history.complete()
            self._unrecorded = None
        else:
            self._unrecorded = revision
        return revision

    def _missing(self, newest: Revision | None) -> Revision:
        if newest is None and self._unrecorded is None and self._may_be_missing:
            return Revision(0)
        try:
            self.files.read()
        except PolicyError as error:
            raise InvalidFileError(error.problems) from error
        return self._settled(is_recorded=False)  # it has come in the meantime

    def _texts(self) -> Texts | None:
        """Read the files once they are no longer being written; None if there is none."""
        texts = self._read()
        for _ in range(_ATTEMPTS):
            if texts is None or not _is_fresh(self.files.stamp()) or self._is_known(texts):
                break
            self._pause(_QUIET)
            again = self._read()
            if again == texts:
                break
            texts = again
        return texts

    def _read(self) -> Texts | None:
        if not self.files.path.exists():
            return None
        try:
            return self.files.read()
        except PolicyError as error:
            raise InvalidFileError(error.problems) from error

    def _is_known(self, texts: Texts) -> bool:
        """True if a `FileSource` wrote the texts: then they are complete."""
        known = (self._history.pending(), self._history.newest())
        return any(one is not None and one.fingerprint == texts.fingerprint for one in known)

    def _adopted(self, texts: Texts, newest: Revision | None, last: int) -> Revision:
        """Return a change by hand as a revision."""
        latest = self._unrecorded or newest
        if self._unrecorded is not None and self._unrecorded.fingerprint == texts.fingerprint:
            return self._unrecorded
        try:
            document, parsed = self._parse(texts.parts)
        except PolicyError as error:
            raise InvalidFileError(error.problems, is_lasting=True) from error
        before = latest or Revision(0)
        number = max(last, before.number) + 1
        what = "import the file"
        if latest is not None:
            what = f"edit the file: {summary_of(before.document, document)}"
        change = Change(BY_HAND, self._target.stat().st_mtime_ns, what)
        versions = versions_after(before, document, number)
        content = (parsed, texts.fingerprint, texts.whole)
        return Revision(number, document, versions, change, *content)

    def _write(self, revision: Revision) -> None:
        history, target, text = self._history, self._target, revision.text or b""
        history.prepare(revision)
        try:
            clear_leftovers(target)
            replace_file(target, text, is_like_old=True, check=self._check_untouched)
        except ConflictError:
            history.abandon()
            raise
        except OSError as error:
            if _has(target, text):
                raise self._half_done(error) from error
            history.abandon()
            raise
        try:
            history.complete()
        except OSError as error:
            raise self._half_done(error) from error

    def _check_untouched(self) -> None:
        """Raise `ConflictError` if the file was written by hand in the meantime."""
        try:
            texts = self._read()
        except InvalidFileError as error:
            raise ConflictError(f"{self.place}: the file is being written by hand") from error
        if texts is not None and not self._is_known(texts):
            raise ConflictError(f"{self.place}: the file was changed by hand in the meantime")

    def _half_done(self, error: OSError) -> SourceError:
        reason = error.strerror or error
        return SourceError(f"{self.place}: the change was made but may not last: {reason}")


def _has(path: Path, text: bytes) -> bool:
    try:
        return path.read_bytes() == text
    except OSError:
        return False


def _is_fresh(stamp: Stamp) -> bool:
    """True if a file was written so lately that the writing may go on."""
    changes = [found[-2] for found in stamp if len(found) > _FAILED]
    ages = [time.time_ns() - at for at in changes if isinstance(at, int)]
    return any(0 <= age < _QUIET * SECOND for age in ages)


@contextmanager
def _translated(place: str, *, is_change: bool = False) -> Iterator[None]:
    """Translate errors of the operating system to `ControlError`s."""
    try:
        yield
    except OSError as error:
        message = f"{place}: {error.strerror or error}"
        if is_change and error.errno == errno.EBUSY:
            hint = "a file that is mounted by itself cannot be replaced; mount its directory"
            raise ReadOnlyError(f"{message}: {hint}") from error
        if is_change and error.errno in _FORBIDDEN:
            raise ReadOnlyError(f"{message}: this user cannot change it") from error
        raise SourceError(message) from error
