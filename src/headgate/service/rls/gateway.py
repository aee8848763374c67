"""What Headgate's own gateway says in a descriptor besides the request: see `rules.envoy.gateway`.

Only in its domain: in any other the same keys are ordinary entries. Rules do not see them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.rules.envoy.gateway import (
    DEBUG,
    DECIDED,
    GATEWAY_DOMAIN,
    LIMIT,
    OUTAGE,
    REFUSED,
    REPORT,
)
from headgate.rules.matching import cost_after
from headgate.service.rls import wire
from headgate.service.rls.messages import Struct

if TYPE_CHECKING:
    from headgate.rules.model import Rule
    from headgate.service.requested import Entries

_NOBODY: Final[frozenset[str]] = frozenset()
_WORDS: Final = frozenset({DEBUG, DECIDED, REPORT, REFUSED})


class Spoken(NamedTuple):
    """The *entries* of the request itself; the ids of rules that are *decided* elsewhere; the one
    to which the hits of the descriptor are a *report* of what a request has cost, unless it
    *is_refused*."""

    entries: Entries
    decided: frozenset[str] = _NOBODY
    report: str | None = None
    is_refused: bool = False
    debug: str | None = None
    """The token by which the client may hear how it was decided, unchecked."""


def spoken_in(domain: str, entries: Entries) -> Spoken:
    """What a descriptor with *entries* in *domain* says."""
    if domain != GATEWAY_DOMAIN:
        return Spoken(entries)
    words = {key: value for key, value in entries if key in _WORDS}
    if not words:
        return Spoken(entries)
    return Spoken(
        tuple([entry for entry in entries if entry[0] not in _WORDS]),
        frozenset(words.get(DECIDED, "").split(",")),
        words.get(REPORT),
        REFUSED in words,
        words.get(DEBUG),
    )


def refused_field(*, is_outage: bool) -> bytes:
    """What tells the gateway why a request is refused, as a field of the answer."""
    return _REFUSED_FIELDS[is_outage]


def cost_left(rule: Rule, reported: int, admitted: int) -> int:
    """What is still to be charged for a request that has cost *reported*, if *rule* is told such
    costs, and for which *admitted* was charged before; 0 for nothing."""
    after = rule.cost.after
    return 0 if after is None else max(0, cost_after(after, reported) - admitted)


def _refused(why: str) -> bytes:
    struct = Struct()
    struct.fields[REFUSED].string_value = why
    return wire.metadata(struct.SerializeToString(deterministic=True))


_REFUSED_FIELDS: Final = {False: _refused(LIMIT), True: _refused(OUTAGE)}
