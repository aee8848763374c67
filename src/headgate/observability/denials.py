"""Refusals in the log: a few of each rule and second, with how many were left out.

The logger is `headgate.decisions`, the level info. A record carries `rule`, `key` (a pseudonym,
never the key), `source`, `outcome` (`denied`, or `shadow_denied` by a rule that only says so),
`retry_after` (seconds; None: never), `cost`, `revision` and `left_out` (refusals by this rule that
were not told since the last that was).
"""

from __future__ import annotations

import logging
import secrets
import time
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from headgate.errors import OptionError
from headgate.observability.journal import DENIALS, JOURNAL, OTHER
from headgate.units import SECOND, seconds_at_least

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.observability.journal import Decided, Journal, Said


# Keys as they may be told: the same name for the same key, and no way back to it.
#
# A key may hold a user's name or an address. What is logged, traced or shown tells a keyed hash of
# it: whoever has the salt can compute it for a key they know (`headgate` does, from the same salt),
# nobody else can try names until one fits.


LENGTH: Final = 16
"""Characters of a pseudonym."""

_REMEMBERED: Final = 4096
_PURPOSE: Final = b"headgate-told"


def pseudonyms(salt: bytes | None = None) -> Callable[[str], str]:
    """What makes pseudonyms of keys: those of an equal *salt* are equal; without one, those of this
    call alone."""
    secret = salt or secrets.token_bytes(32)
    if len(secret) > blake2b.MAX_KEY_SIZE:
        secret = blake2b(secret).digest()

    @lru_cache(maxsize=_REMEMBERED)
    def pseudonym(key: str) -> str:
        text = key.encode("utf-8", "surrogatepass")
        return blake2b(text, digest_size=LENGTH // 2, key=secret, person=_PURPOSE).hexdigest()

    return pseudonym


LOG: Final = logging.getLogger("headgate.decisions")

FIELDS: Final = "headgate_fields"
"""Under which name a record carries its figures, for whoever writes them as JSON."""

MOST_RULES: Final = 1024
"""How many rules are told apart; those beyond share what may be told a second."""

_LONG: Final = 100
"""Seconds of which parts are not told in words."""


class Denials:
    """Hears of decisions, and logs at most *per_second* refusals of each rule.

    *show_key* says how a key is told; a pseudonym made with *salt* if not given.
    Threads may share one without a lock: at worst a line more or less is told.
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
        self._forgot: int | None = None
        self._told: dict[str, list[int]] = {}
        """By rule: the second, how many were told in it, how many left out since the last."""

    def __call__(self, decided: Decided) -> None:
        """Hear of a decision."""
        for said in decided.rules:
            if said.outcome in DENIALS and LOG.isEnabledFor(logging.INFO):
                self._hear(said, decided.revision)

    def _hear(self, said: Said, revision: int) -> None:
        second = self._clock() // SECOND
        entry = self._told.get(said.rule)
        if entry is None:
            entry = self._entry(said.rule, second)
        if entry[0] != second:
            entry[0], entry[1] = second, 0
        if entry[1] >= self._per_second:
            entry[2] += 1
            return
        entry[1] += 1
        left_out, entry[2] = entry[2], 0
        self._tell(said, revision, left_out)

    def _entry(self, rule: str, second: int) -> list[int]:
        """That of a *rule* which has none; of many, those are forgotten that have been quiet."""
        if len(self._told) >= MOST_RULES and self._forgot != second:
            self._forgot = second
            known = list(self._told.items())  # at once: other threads may add to it meanwhile
            self._told = {name: entry for name, entry in known if entry[0] >= second - 1}
        return self._told.setdefault(
            rule if len(self._told) < MOST_RULES else OTHER, [second, 0, 0]
        )

    def _tell(self, said: Said, revision: int, left_out: int) -> None:
        wait = None if said.retry_after_ns is None else seconds_at_least(said.retry_after_ns)
        fields = {
            "rule": said.rule,
            "key": self._show_key(said.key) if said.key else "",
            "source": said.source,
            "outcome": said.outcome,
            "retry_after": wait,
            "cost": said.cost,
            "revision": revision,
            "left_out": left_out,
        }
        LOG.info(
            "%s by %s: key %s, cost %d, %s, said by %s%s",
            said.outcome.replace("_", " "),
            said.rule,
            fields["key"] or "-",
            said.cost,
            _words(wait),
            said.source,
            f" ({left_out} more left out)" if left_out else "",
            extra={FIELDS: fields, **fields},
        )


def _words(wait: float | None) -> str:
    if wait is None:
        return "never fits"
    return f"again in {wait:.3g} s" if wait < _LONG else f"again in {wait:.0f} s"


def log_denials(
    *, per_second: int = 1, salt: bytes | None = None, journal: Journal = JOURNAL
) -> Callable[[], None]:
    """Log refusals of this process from now on, at most *per_second* of each rule; what is returned
    ends that.

    Keys are told as pseudonyms: equal ones in all processes of an equal *salt*, and without one in
    this process alone.
    """
    return journal.listen(Denials(per_second=per_second, salt=salt), only_refusals=True)
