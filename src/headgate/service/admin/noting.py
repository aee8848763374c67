"""What is noted of a call, before it changes anything and when it has ended."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headgate.control.audit import AuditError, AuditEvent
from headgate.limiter import RateLimiter

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.control.audit import Audit, Outcome
    from headgate.service.http.replies import Scope

LOG: Final = logging.getLogger("headgate.audit")
_LONGEST_PATH: Final = 300
_AT_THE_DOOR: Final = "10/s burst 100"
"""How many calls of strangers are noted: they must not fill the disk."""


class Notes:
    """Writes events into *audit*, those of strangers only as far as they are not too many."""

    def __init__(self, audit: Audit, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        self._strangers = RateLimiter(_AT_THE_DOOR, clock=clock)
        self._left_out = 0

    def of(self, scope: Scope) -> Note:
        """What is to be noted of one call."""
        return Note(self, scope)

    async def write(self, event: AuditEvent) -> None:
        """Note *event*. Raises `AuditError`."""
        await self._audit.write(event)

    def takes_stranger(self) -> bool:
        """Whether one more may be noted."""
        if self._strangers.hit("door"):
            return True
        self._left_out += 1
        return False

    def left_out(self) -> int:
        """How many were not noted since this was last asked."""
        count, self._left_out = self._left_out, 0
        return count

    def now_ns(self) -> int:
        return self._clock()


@dataclass(slots=True)
class Note:
    """What is noted of one call. *author* is known once the caller was let in."""

    notes: Notes
    scope: Scope
    author: str | None = None
    what: str = ""
    is_attempt: bool = False
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    async def begin(self, what: str) -> None:
        """Note what is about to be done. Raises `AuditError`: then it must not be."""
        self.what = what
        await self.notes.write(self._event("attempt"))
        self.is_attempt = True

    async def end(self, outcome: Outcome, status: int, revision: int | None) -> None:
        """Note what came of it; a failure to is told to the log, for it is too late for more."""
        if self.author is None and not self.notes.takes_stranger():
            return
        try:
            await self.notes.write(self._event(outcome, status, revision))
        except AuditError as error:
            LOG.error("%s; %s %s", error, outcome, self.what or self.scope["path"])  # noqa: TRY400

    def _event(
        self, outcome: Outcome, status: int | None = None, revision: int | None = None
    ) -> AuditEvent:
        client = self.scope.get("client") or ("",)
        note = [value for name, value in self.scope["headers"] if name == b"x-change-note"]
        return AuditEvent(
            time_ns=self.notes.now_ns(),
            id=self.id,
            author=self.author,
            peer=str(client[0]),
            method=self.scope["method"][:20],
            path=self.scope["path"][:_LONGEST_PATH],
            outcome=outcome,
            status=status,
            revision=revision,
            what=self.what,
            note=note[0].decode("latin-1")[:_LONGEST_PATH] if note and self.author else "",
            left_out=self.notes.left_out(),
        )
