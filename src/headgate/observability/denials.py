"""A log of denials: a few per rule and second, with the number of those left out.

The logger is `headgate.decisions`, the level info. A record has `rule`, `key` (a pseudonym, never
the key), `source`, `outcome` (`denied`, or `shadow_denied` by a shadow rule), `retry_after`
(seconds; None: never), `cost`, `revision` and `left_out` (denials by this rule since its last
record).

A key may hold a user name or an address. Logs, traces and pages show a keyed hash of it instead:
only a holder of the salt can compute it for a known key.
"""

from __future__ import annotations

import logging
import secrets
import time
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.observability.decision_recorder import DENIALS, OTHER, RECORDER
from headgate.units import SECOND, seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.observability.decision_recorder import (
        DecisionRecord,
        DecisionRecorder,
        RuleRecord,
    )


LENGTH: Final = 16
"""Characters of a pseudonym."""

_CACHE_SIZE: Final = 4096
_PURPOSE: Final = b"headgate-key"


def pseudonyms(salt: bytes | None = None) -> Callable[[str], str]:
    """Return a function that makes pseudonyms of keys with *salt*, by default a random one."""
    secret = salt or secrets.token_bytes(32)
    if len(secret) > blake2b.MAX_KEY_SIZE:
        secret = blake2b(secret).digest()

    @lru_cache(maxsize=_CACHE_SIZE)
    def pseudonym(key: str) -> str:
        text = key.encode("utf-8", "surrogatepass")
        return blake2b(text, digest_size=LENGTH // 2, key=secret, person=_PURPOSE).hexdigest()

    return pseudonym


LOG: Final = logging.getLogger("headgate.decisions")

FIELDS: Final = "headgate_fields"
"""The attribute of a log record with its figures, for JSON formatters."""

MOST_RULES: Final = 1024
"""The most rules with a rate of their own; all others share one."""

_LONG: Final = 100
"""Seconds from which waits are shown without decimals."""


class Denials:
    """A listener that logs at most *per_second* denials of each rule.

    *show_key* returns how a key is shown, by default as a pseudonym made with *salt*. Threads share
    one without a lock: at worst a line more or less is logged.
    """

    def __init__(
        self,
        *,
        per_second: int = 1,
        salt: bytes | None = None,
        show_key: Callable[[str], str] | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        if per_second < 1:
            raise OptionError(f"per_second is {per_second}; expected at least 1")
        self._per_second = per_second
        self._show_key = show_key or pseudonyms(salt)
        self._clock = clock
        self._pruned: int | None = None
        self._entries: dict[str, list[int]] = {}
        """By rule: the second, the denials logged in it, those left out since the last one."""

    def __call__(self, decided: DecisionRecord) -> None:
        """Log the denials of a decision."""
        for record in decided.rules:
            if record.outcome in DENIALS and LOG.isEnabledFor(logging.INFO):
                self._record(record, decided.revision)

    def _record(self, record: RuleRecord, revision: int) -> None:
        second = self._clock() // SECOND
        entry = self._entries.get(record.rule) or self._entry(record.rule, second)
        if entry[0] != second:
            entry[0], entry[1] = second, 0
        if entry[1] >= self._per_second:
            entry[2] += 1
            return
        entry[1] += 1
        left_out, entry[2] = entry[2], 0
        self._log(record, revision, left_out)

    def _entry(self, rule: str, second: int) -> list[int]:
        """Return a new entry for *rule*; drop quiet rules if there are too many."""
        if len(self._entries) >= MOST_RULES and self._pruned != second:
            self._pruned = second
            known = list(self._entries.items())  # at once: other threads may add to it meanwhile
            self._entries = {name: entry for name, entry in known if entry[0] >= second - 1}
        name = rule if len(self._entries) < MOST_RULES else OTHER
        return self._entries.setdefault(name, [second, 0, 0])

    def _log(self, record: RuleRecord, revision: int, left_out: int) -> None:
        wait = None if record.retry_after_ns is None else seconds_at_least(record.retry_after_ns)
        fields = {
            "rule": record.rule,
            "key": self._show_key(record.key) if record.key else "",
            "source": record.source,
            "outcome": record.outcome,
            "retry_after": wait,
            "cost": record.cost,
            "revision": revision,
            "left_out": left_out,
        }
        LOG.info(
            "%s by %s: key %s, cost %d, %s, source %s%s",
            record.outcome.replace("_", " "),
            record.rule,
            fields["key"] or "-",
            record.cost,
            _wait_text(wait),
            record.source,
            f" ({left_out} more left out)" if left_out else "",
            extra={FIELDS: fields, **fields},
        )


def _wait_text(wait: float | None) -> str:
    if wait is None:
        return "never fits"
    return f"retry after {wait:.3g} s" if wait < _LONG else f"retry after {wait:.0f} s"


def log_denials(
    *, per_second: int = 1, salt: bytes | None = None, recorder: DecisionRecorder = RECORDER
) -> Callable[[], None]:
    """Log denials of this process, at most *per_second* of each rule; return a function that ends
    that.

    Keys are shown as pseudonyms, which are equal in all processes with an equal *salt*.
    """
    return recorder.listen(Denials(per_second=per_second, salt=salt), only_denials=True)
