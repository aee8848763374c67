"""The audit log: who changed, or tried to change, what, and when. One line per event: in a file as
JSON, in the log in its format.

A change is two lines with one *id*: the *attempt*, written before anything is changed, and the
*result*. If the attempt cannot be written the change is not made, so that no change is without a
line. A call that is not authenticated is a result only. Lines have no bodies and no tokens, and
keys as the counters have them, with secrets hashed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from headgate.control.revision import ControlError
from headgate.observability.denials import FIELDS
from headgate.policy.fields import instant_text
from headgate.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LOG: Final = logging.getLogger("headgate.audit")
MOST_REMEMBERED: Final = 1_000
_TAIL: Final = 1024 * 1024
"""The bytes at the end of a file that are searched for events."""

Outcome = Literal["attempt", "changed", "unchanged", "refused", "failed"]


class AuditError(ControlError):
    """A line could not be written, so the change must not be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """One event. *author* is None for a caller who is not authenticated."""

    time_ns: int = 0
    id: str
    author: str | None
    peer: str
    method: str
    path: str
    outcome: Outcome = "attempt"
    status: int | None = None
    revision: int | None = None
    what: str = ""
    note: str = ""
    left_out: int = 0
    """The number of events before this one that were left out."""

    def to_data(self) -> dict[str, Any]:
        """Return the event as data, without unknown fields."""
        data = {
            "time": instant_text(self.time_ns),
            **asdict(self),
            "left_out": self.left_out or None,
        }
        del data["time_ns"]
        return {name: value for name, value in data.items() if value not in (None, "")}

    def to_line(self) -> str:
        """Return the event as a line of ASCII, which no value can break."""
        return json.dumps(self.to_data(), separators=(",", ":"))

    def __str__(self) -> str:
        """The event as a line of text for the log."""
        said = self.what or f"{self.method} {self.path}"
        about = [f"revision {self.revision}" if self.revision else "", self.note, f"id {self.id}"]
        details = ", ".join(one for one in about if one)
        who = self.author or "a caller without a valid token"
        return printable(f"audit: {said} by {who} at {self.peer}: {self.outcome} ({details})")


class AuditLog:
    """Writes events to a *log*, as text with the data as fields, and keeps the last of them."""

    def __init__(self, log: logging.Logger = LOG) -> None:
        self._log = log
        self._latest: deque[dict[str, Any]] = deque(maxlen=MOST_REMEMBERED)

    async def write(self, event: AuditEvent) -> None:
        """Record *event*."""
        data = event.to_data()
        self._log.info("%s", event, extra={FIELDS: data})
        self._latest.append(data)

    async def latest(self, most: int) -> Sequence[dict[str, Any]]:
        """Return the last *most* events of this process, newest first."""
        return [*self._latest][::-1][:most]


class AuditFile:
    """Appends events to *path*, which may be rotated: it is opened for each event.

    Several processes may write.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    async def write(self, event: AuditEvent) -> None:
        """Record *event*. Raises `AuditError`."""
        try:
            await asyncio.to_thread(self._append, event.to_line().encode("ascii") + b"\n")
        except OSError as error:
            reason = error.strerror or error
            raise AuditError(
                f"the audit line cannot be written to {self._path}: {reason}"
            ) from error

    async def latest(self, most: int) -> Sequence[dict[str, Any]]:
        """Return the last *most* events in the file, newest first. Raises `AuditError`."""
        try:
            tail = await asyncio.to_thread(self._tail)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise AuditError(f"{self._path}: {error.strerror or error}") from error
        found = [_event_in(line) for line in tail.splitlines()[::-1]]
        return [event for event in found if event is not None][:most]

    def _append(self, line: bytes) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            # At once: a line of another process does not come between.
            if os.write(descriptor, line) != len(line):
                raise OSError(0, "it was written only in part")
        finally:
            os.close(descriptor)

    def _tail(self) -> bytes:
        with self._path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            return file.read(_TAIL)


Audit = AuditLog | AuditFile
"""A destination of events."""


def _event_in(line: bytes) -> dict[str, Any] | None:
    """Return the event in *line*; None if the line is cut."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
