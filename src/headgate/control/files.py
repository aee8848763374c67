"""The files of a policy: one, or those of a directory, read whole or not at all."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from glob import escape
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from headgate.control.documents import parse_policy
from headgate.errors import OptionError
from headgate.policy.document import MAX_BYTES
from headgate.policy.problems import PolicyError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.policy.model import Policy


MOST_FILES: Final = 100
"""The most files of a directory that are read."""

SUFFIXES: Final = (".yaml", ".yml", ".json")
_IGNORED: Final = (".", "#", "~")
"""The beginnings of names of hidden files, editors' swap and lock files, Kubernetes' `..data`."""

_NONBLOCKING: Final = getattr(os, "O_NONBLOCK", 0)
"""Open without waiting, even if a FIFO has just replaced the file."""

Stamp: TypeAlias = tuple[tuple[object, ...], ...]
"""The status of the files, without their content. Equal: nothing has changed."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A policy that was read. *fingerprint* is that of the content; *warnings* are about it."""

    policy: Policy
    fingerprint: str
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Texts:
    """The content of the files: for each the place and the bytes."""

    parts: tuple[tuple[str, bytes], ...]
    fingerprint: str

    @property
    def whole(self) -> bytes:
        """The texts, joined; a single one stays as it is."""
        return b"\n".join(text for _, text in self.parts)


class PolicyFiles:
    """The policy in the file *path*, or in the `*.yaml`, `*.yml` and `*.json` of a directory.

    The files of a directory are one policy, in the order of their names. Those are left out whose
    name begins with `.`, `#` or `~`: hidden ones, and what editors leave behind. Symbolic links
    are followed. What *path* is may change at any time; only regular files are read, at most 1 MiB
    of each and at most 100 of them.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if "\0" in str(self.path):
            raise OptionError(f"a path cannot have a NUL in it: {str(self.path)!r}")

    def load(self) -> Loaded:
        """Load the policy. Raises `PolicyError` with everything that is wrong."""
        texts = self.read()
        _, parsed = parse_policy(texts.parts)
        return Loaded(parsed.config, texts.fingerprint, parsed.warnings)

    def read(self) -> Texts:
        """Read the files. Raises `PolicyError` about all that cannot be read."""
        found: list[tuple[Path, bytes]] = []
        problems: list[Problem] = []
        for path in self._paths():
            try:
                found.append((path, _content(path)))
            except PolicyError as error:
                problems += error.problems
        if problems:
            raise PolicyError(problems)
        return Texts(tuple((place_of(path), text) for path, text in found), fingerprint_of(*found))

    def stamp(self) -> Stamp:
        """Return the status of the files, which changes when they do. Never raises.

        Links are followed, so that a link to another file is noticed. The status of the directory
        is left out: other files in it do not matter.
        """
        try:
            return tuple(_stamp(path) for path in self._paths())
        except PolicyError as error:
            return ((str(error),),)

    def _paths(self) -> list[Path]:
        """Return the files in order. Raises `PolicyError` if there are none or too many."""
        try:
            if not stat.S_ISDIR(self.path.stat().st_mode):
                return [self.path]
            found = sorted(path for path in self.path.iterdir() if _is_policy_file(path.name))
        except OSError as error:
            raise _unreadable(self.path, error) from error
        if not found:
            hint = f"expected files whose names end in {', '.join(SUFFIXES)}"
            raise _invalid(self.path, "there are no policy files in this directory", hint)
        if len(found) > MOST_FILES:
            message = f"{len(found)} policy files in this directory; at most {MOST_FILES} are read"
            raise _invalid(self.path, message)
        return found


def fingerprint_of(*files: tuple[Path, bytes]) -> str:
    """Return a digest of the names and contents of *files*."""
    digest = blake2b(digest_size=16)
    for path, content in files:
        for piece in (os.fsencode(path.name), content):
            digest.update(b"%d:%b" % (len(piece), piece))
    return digest.hexdigest()


def place_of(path: Path) -> str:
    """Return *path* for messages: printable, whatever bytes the name has."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _is_policy_file(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(_IGNORED)


def _stamp(path: Path) -> tuple[object, ...]:
    try:
        found = path.stat()
    except OSError as error:
        return (path.name, error.errno)
    change = (found.st_mtime_ns, found.st_ctime_ns)
    return (path.name, found.st_dev, found.st_ino, found.st_mode, found.st_size, *change)


def _content(path: Path) -> bytes:
    """Read the file. Raises `PolicyError`."""
    try:
        _check(path, path.stat())  # before it is opened: with a device that alone may do something
        with open(path, "rb", opener=_open_nonblocking) as file:
            _check(path, os.fstat(file.fileno()))
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    _check_size(path, len(content))
    return content


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | _NONBLOCKING)


def _check(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise _invalid(path, f"this is {_kind(found.st_mode)}", "expected a regular file")
    _check_size(path, found.st_size)


def _check_size(path: Path, size: int) -> None:
    if size > MAX_BYTES:
        raise _invalid(path, f"too large; at most {MAX_BYTES} bytes (1 MiB) are read")


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "a special file")


def _unreadable(path: Path, error: OSError) -> PolicyError:
    if isinstance(error, FileNotFoundError):
        what = "a link to nothing" if path.is_symlink() else "there is no such file or directory"
        return _invalid(path, what)
    return _invalid(path, f"cannot be read: {error.strerror or error}")


def _invalid(path: Path, message: str, hint: str = "") -> PolicyError:
    return PolicyError([Problem("error", place_of(path), message, hint=hint)])


# ---- atomic replacement of a file ----------------------------------------------------------
#
# The new content goes into a file beside it, which is on the disk before it takes the name. A crash
# leaves that file behind, and the next writer removes it.

_PRIVATE: Final = 0o600
_SUFFIX: Final = ".new"


def replace_file(
    path: Path,
    content: bytes,
    *,
    is_like_old: bool = False,
    check: Callable[[], None] | None = None,
) -> None:
    """Replace the content of *path*. Raises `OSError`.

    Only its owner, this user, can read the file; with *is_like_old* it has the permissions of the
    file that it replaces, and its owner and group where this user may set them. *check* is called
    just before the old file is replaced, and may raise to keep it. An error before the last step
    leaves the old file; one in the last, which syncs the directory, leaves the new one.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}{_SUFFIX}")
    try:
        _write(beside, content, _found(path) if is_like_old else None)
        if check is not None:
            check()
        beside.replace(path)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
    sync_directory(path.parent)


def clear_leftovers(path: Path, *, age: float = 0.0) -> None:
    """Remove unfinished files of earlier writers of *path* that are *age* seconds old or more."""
    with suppress(OSError):
        for beside in list(path.parent.glob(f".{escape(path.name)}.*{_SUFFIX}")):
            if time.time() - beside.stat().st_mtime >= age:
                beside.unlink(missing_ok=True)


def sync_directory(directory: Path) -> None:
    """Sync *directory* to the disk."""
    if os.name == "nt":  # pragma: no cover - directories cannot be opened there
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _found(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _write(path: Path, content: bytes, like: os.stat_result | None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        if like is not None:
            if hasattr(os, "fchown"):  # pragma: no branch - there is none on Windows
                with suppress(OSError):  # only root gives files away
                    os.fchown(descriptor, like.st_uid, like.st_gid)
            path.chmod(stat.S_IMODE(like.st_mode))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
