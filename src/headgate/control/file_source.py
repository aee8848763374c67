"""Revisions in a policy file and a history beside it, for an event loop.

The file is the newest revision. People may go on editing it by hand; what they write becomes a
revision of the author `file`, and what is no policy changes nothing and is told. A change through
the storage rewrites the file, and comments are lost: the text before is in the history.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.control.documents import document_of, summary_of, text_of, versions_after
from headgate.control.file_history import Entry, FileHistory, digest_of
from headgate.control.files import PolicyFiles, Texts, clear_leftovers, place_of, replace_file
from headgate.control.revision import (
    Change,
    ConflictError,
    ReadOnlyError,
    Revision,
    StorageError,
    UnknownRevisionError,
)
from headgate.policy.problems import PolicyError
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from headgate.control.files import Stamp
    from headgate.policy.problems import Problem


# A policy file that is the newest revision, and the history beside it, kept in step.
#
# What people do to the file by hand becomes a revision as soon as anybody looks: its author is
# `file`. Everything here blocks; `FileStorage` is the same for an event loop.


LOG: Final = logging.getLogger("headgate.control")
BY_HAND: Final = "file"
"""The author of what was done to the file by hand."""
_MOMENT: Final = 0.1
"""For how many seconds a file must not have been written to be read: it may be half a file."""
_PATIENCE: Final = 20
_FAILED: Final = 2
"""How much the stamp of a file says that cannot be asked about."""
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_ANY_WRITE: Final = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class UnreadableFileError(StorageError):
    """A policy file that is no policy now, or gone. `problems` has all that is wrong with it.

    *is_lasting*: it is what the file says, and will be until somebody changes it.
    """

    def __init__(self, problems: Sequence[Problem], *, is_lasting: bool = False) -> None:
        self.problems = tuple(problems)
        self.is_lasting = is_lasting
        super().__init__("\n".join(str(problem) for problem in self.problems))


class PolicyFile:
    """The policy in *path* with its history. Safe among threads and processes of one machine.

    If it *may_be_missing*, a file that was never there is revision 0. With *read_only* nothing is
    ever written, and so it is with a directory of files and where permission is missing: changes
    by hand are then numbered from what is known, for this process only.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        may_be_missing: bool,
        read_only: bool,
        most: int,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.files = PolicyFiles(path)
        self.place = place_of(self.files.path)
        beside = self.files.path.with_name(f"{self.files.path.name}.history")
        self.history = FileHistory(beside, most=most)
        self._may_be_missing = may_be_missing
        self._read_only = read_only
        self._pause = pause
        self._unrecorded: Entry | None = None
        self._known: tuple[Stamp, Revision | tuple[Problem, ...]] | None = None

    def head(self) -> Revision:
        """The newest revision. Raises `UnreadableFileError`, `StorageError`."""
        stamp, known = self.files.stamp(), self._known
        if known is None or known[0] != stamp:
            found: Revision | tuple[Problem, ...]
            try:
                with _translated(self.place):
                    found = self._looked_at()
            except UnreadableFileError as error:
                if not error.is_lasting:
                    raise
                found = error.problems
            known = stamp, found
            # A file that has just been written may be written again without looking different.
            self._known = None if _is_fresh(stamp) else known
        if isinstance(known[1], Revision):
            return known[1]
        raise UnreadableFileError(known[1], is_lasting=True)

    def commit(self, revision: Revision) -> None:
        """Make *revision* the newest: `PolicyStorage.commit`."""
        if self._read_only or self.files.path.is_dir():
            what = "a directory of files" if self.files.path.is_dir() else "opened for reading only"
            raise ReadOnlyError(f"{self.place}: rules here are changed by hand: it is {what}")
        if not self._may_be_written():
            raise ReadOnlyError(f"{self.place}: the file is read-only; chmod u+w would let it be")
        is_yaml = not self._target.name.lower().endswith(".json")
        entry = Entry(revision, text_of(revision.document, is_yaml=is_yaml))
        self._known = None  # whatever comes of it, the next look is a new one
        with _translated(self.place, is_change=True), self.history.locked(to_write=True):
            try:
                newest = self._settled(is_recorded=True)
            except UnreadableFileError as error:
                told = "was changed by hand and is no policy now; put it right by hand first"
                raise ReadOnlyError(f"{self.place}: it {told}\n{error}") from error
            if newest.number != revision.number - 1:
                raise ConflictError(f"{self.place}: the policy is at revision {newest.number} now")
            self._write(entry)

    def at(self, number: int) -> Revision:
        """The revision *number*. Raises `UnknownRevisionError`."""
        newest = self.head()
        if newest.number == number != 0:
            return newest
        with _translated(self.place):
            entry = self.history.at(number)
        if number > newest.number:
            raise UnknownRevisionError(f"{self.place}: there is no revision {number}")
        return entry.revision

    def changes(self, *, before: int | None, most: int) -> list[tuple[int, Change]]:
        """Number and change of the newest below *before*."""
        newest = self.head()
        with _translated(self.place):
            found = self.history.changes(before=before, most=most)
        is_wanted = newest.number > 0 and (before is None or newest.number < before)
        if is_wanted and newest.number not in dict(found):
            found = [(newest.number, newest.change), *found]
        return found[:most]

    @property
    def _target(self) -> Path:
        """The file itself, links followed: it is replaced, not the link."""
        return Path(os.path.realpath(self.files.path))

    def _looked_at(self) -> Revision:
        """The newest revision, taken down if it can be."""
        if self._is_writable():
            try:
                with self.history.locked(to_write=True):
                    return self._settled(is_recorded=True)
            except OSError as error:
                LOG.warning("%s: the history cannot be kept: %s", self.place, error)
        with self.history.locked(to_write=False):
            return self._settled(is_recorded=False)

    def _is_writable(self) -> bool:
        """Whether there is something to write down, and a place for it."""
        if self._read_only or not self.files.path.is_file():
            return False
        return os.access(self.files.path.parent, os.W_OK) and self._may_be_written()

    def _may_be_written(self) -> bool:
        try:
            return bool(self._target.stat().st_mode & _ANY_WRITE)
        except FileNotFoundError:
            return True

    def _settled(self, *, is_recorded: bool) -> Revision:
        """The newest revision, after what was under way, and what was done by hand."""
        texts = self._texts()
        digest = None if texts is None else _digest(texts)
        pending = self.history.pending()
        if pending is not None and pending.digest == digest:
            if is_recorded:
                self.history.complete()
            return pending.revision
        if pending is not None and is_recorded:
            self.history.abandon()
        newest = self.history.newest()
        if texts is None:
            return self._missing(newest)
        last = max([0, *self.history.numbers])
        if newest is not None and newest.digest == digest and newest.revision.number == last:
            return newest.revision
        return self._adopted(texts, newest, last, is_recorded=is_recorded)

    def _missing(self, newest: Entry | None) -> Revision:
        if newest is None and self._unrecorded is None and self._may_be_missing:
            return Revision(0)
        try:
            self.files.read()
        except PolicyError as error:
            raise UnreadableFileError(error.problems) from error
        raise StorageError(f"{self.place}: it comes and goes")

    def _texts(self) -> Texts | None:
        """What the file says, once nobody is writing it; None if there is none."""
        texts = self._read()
        for _ in range(_PATIENCE):
            if texts is None or not _is_fresh(self.files.stamp()) or self._is_known(texts):
                break
            self._pause(_MOMENT)
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
            raise UnreadableFileError(error.problems) from error

    def _is_known(self, texts: Texts) -> bool:
        """Whether one of us wrote it: then it is whole."""
        digest = _digest(texts)
        return any(
            one is not None and one.digest == digest
            for one in (self.history.pending(), self.history.newest())
        )

    def _adopted(
        self, texts: Texts, newest: Entry | None, last: int, *, is_recorded: bool
    ) -> Revision:
        """What was done by hand, as a revision."""
        text = _whole(texts)
        known = self._unrecorded
        if known is not None and known.digest == digest_of(text):
            entry = known
        else:
            entry = self._by_hand(texts, text, newest, last)
        if is_recorded and entry.revision.number > last:
            self.history.prepare(entry)
            self.history.complete()
            self._unrecorded = None
        else:
            self._unrecorded = entry
        return entry.revision

    def _by_hand(self, texts: Texts, text: bytes, newest: Entry | None, last: int) -> Entry:
        try:
            document = document_of(texts.parts)
        except PolicyError as error:
            raise UnreadableFileError(error.problems, is_lasting=True) from error
        latest = self._unrecorded or newest
        before = Revision(0) if latest is None else latest.revision
        number = max(last, before.number) + 1
        what = "begin with the file"
        if latest is not None:
            what = f"edit the file: {summary_of(before.document, document)}"
        changed_at = self._target.stat().st_mtime_ns
        versions = versions_after(before, document, number)
        return Entry(Revision(number, document, versions, Change(BY_HAND, changed_at, what)), text)

    def _write(self, entry: Entry) -> None:
        target = self._target
        self.history.prepare(entry)
        try:
            clear_leftovers(target)
            replace_file(target, entry.text, is_like_old=True, check=self._check_untouched)
        except ConflictError:
            self.history.abandon()
            raise
        except OSError as error:
            if _has(target, entry.text):
                raise self._half_done(error) from error
            self.history.abandon()
            raise
        try:
            self.history.complete()
        except OSError as error:
            raise self._half_done(error) from error

    def _check_untouched(self) -> None:
        """Raise `ConflictError` if somebody has written the file while this was under way."""
        try:
            texts = self._read()
        except UnreadableFileError as error:
            raise ConflictError(f"{self.place}: somebody is writing it") from error
        if texts is not None and not self._is_known(texts):
            raise ConflictError(f"{self.place}: it was changed by hand meanwhile")

    def _half_done(self, error: OSError) -> StorageError:
        told = "it was changed, and the change may not last"
        return StorageError(f"{self.place}: {told}: {error.strerror or error}")


def _digest(texts: Texts) -> str:
    return digest_of(_whole(texts))


def _whole(texts: Texts) -> bytes:
    """The texts as one: of a single file as it is."""
    return b"\n".join(text for _, text in texts.parts)


def _has(path: Path, text: bytes) -> bool:
    try:
        return path.read_bytes() == text
    except OSError:
        return False


def _is_fresh(stamp: Stamp) -> bool:
    """Whether one of the files was written so lately that the writing may go on."""
    changes = [found[-2] for found in stamp if len(found) > _FAILED]
    ages = [time.time_ns() - at for at in changes if isinstance(at, int)]
    return any(0 <= age < _MOMENT * SECOND for age in ages)


@contextmanager
def _translated(place: str, *, is_change: bool = False) -> Iterator[None]:
    """Errors of the operating system as ours."""
    try:
        yield
    except OSError as error:
        told = f"{place}: {error.strerror or error}"
        if is_change and error.errno == errno.EBUSY:
            hint = "a file that is mounted by itself cannot be replaced; mount its directory"
            raise ReadOnlyError(f"{told}: {hint}") from error
        if is_change and error.errno in _FORBIDDEN:
            raise ReadOnlyError(f"{told}: it cannot be changed by this user") from error
        raise StorageError(told) from error


MOST_REVISIONS: Final = 200
"""How many are kept beside the file."""
_INTERVAL: Final = 0.1


class FileStorage:
    """A `PolicyStorage` in the policy file *path* (YAML; JSON if its name ends so).

    Several processes of a machine may have it open. A file that *may_be_missing* is an empty policy
    until something is written; else its absence is an error. *read_only* keeps everything from
    being written, the history too: give it where nobody may change rules over the network. A
    directory of files is always read-only. *interval* is the time between looks in seconds.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        may_be_missing: bool = False,
        read_only: bool = False,
        most: int = MOST_REVISIONS,
        interval: float = _INTERVAL,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._file = PolicyFile(
            path, may_be_missing=may_be_missing, read_only=read_only, most=most, pause=pause
        )
        self._interval = interval

    @property
    def place(self) -> str:
        """The path."""
        return self._file.place

    async def head(self) -> Revision:
        """The newest revision. Raises `UnreadableFileError` while the file is no policy."""
        return await asyncio.to_thread(self._file.head)

    async def commit(self, revision: Revision) -> None:
        """Make *revision* the newest; the file is rewritten, without the comments in it.

        Raises `ConflictError`; `ReadOnlyError` also while the file, changed by hand, is no policy:
        what somebody is writing there is not overwritten.
        """
        await asyncio.to_thread(self._file.commit, revision)

    async def at(self, number: int) -> Revision:
        """The revision *number*. Raises `UnknownRevisionError`."""
        return await asyncio.to_thread(self._file.at, number)

    async def history(
        self, *, before: int | None = None, most: int = 50
    ) -> Sequence[tuple[int, Change]]:
        """Number and change of the newest below *before*."""
        return await asyncio.to_thread(self._file.changes, before=before, most=most)

    async def watch(self, after: int) -> AsyncIterator[Revision]:
        """The newest revision whenever it is another. A file that is no policy is looked at twice
        before that is told, by `UnreadableFileError`: it may be on its way."""
        is_doubted = False
        while True:
            try:
                newest = await self.head()
            except UnreadableFileError:
                if is_doubted:
                    raise
                is_doubted = True
            else:
                is_doubted = False
                if newest.number != after:
                    after = newest.number
                    yield newest
            await asyncio.sleep(self._interval)

    async def aclose(self) -> None:
        """Nothing is held open."""
