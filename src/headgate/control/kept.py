"""The last good revision on the disk of this machine, to start on while the storage is down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.control.replacement import clear_leftovers, replace_file
from headgate.control.revision import StorageError, revision_from_json

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.control.revision import Revision


_OLD: Final = 60.0


class KeptRevision:
    """A copy in *path*, replaced as a whole. Several processes may write it: the last one wins."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Revision | None:
        """What was kept; None if nothing was. Raises `StorageError`."""
        try:
            return revision_from_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{self._path}: {error.strerror or error}") from error

    def write(self, revision: Revision) -> None:
        """Keep *revision*. Raises `StorageError`."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path, revision.to_json())
        except OSError as error:
            raise StorageError(f"{self._path}: {error.strerror or error}") from error

    def clear_leftovers(self) -> None:
        """Remove what a killed process left behind, and nothing that another is about to write."""
        clear_leftovers(self._path, age=_OLD)
