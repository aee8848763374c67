"""Decisions made by hand, for answers that are easy to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.decision import Decision, combine
from headgate.limits import parse_limit
from headgate.responses import Answer, ResponseOptions, RuleAnswer
from headgate.responses.answer import denial_of
from headgate.responses.bodies import denial_body

if TYPE_CHECKING:
    from headgate.decision import HeaderMode
    from headgate.limits import Limit

NOW = 1_800_000_000_250_000_000
"""A quarter past a second."""

MS = 1_000_000


def decided(
    limit: str | Limit = "100/minute sliding_window_log",
    *,
    left: int = 42,
    retry_ms: int | None = 0,
    reset_ms: int = 12_000,
    source: str = "store",
    key: str = "user:42",
) -> Decision:
    """What one limit said; it refused unless *retry_ms* is 0."""
    return Decision(
        key,
        parse_limit(limit) if isinstance(limit, str) else limit,
        allowed=retry_ms == 0,
        remaining=left,
        retry_after_ns=None if retry_ms is None else retry_ms * MS,
        reset_after_ns=reset_ms * MS,
        source=source,
    )


def refused(
    limit: str | Limit = "100/minute sliding_window_log",
    *,
    retry_ms: int | None = 22_400,
    reset_ms: int = 22_400,
    source: str = "store",
) -> Decision:
    """What one limit said that had nothing left."""
    return decided(limit, left=0, retry_ms=retry_ms, reset_ms=reset_ms, source=source)


def outage() -> Decision:
    """What is said when the store is gone and the rule is closed."""
    return refused(retry_ms=1_000, reset_ms=0, source="fail_closed")


def told(
    *decisions: Decision, name: str = "per-user", headers: HeaderMode = "on", sheds: bool = False
) -> RuleAnswer:
    """A rule with these limits."""
    return RuleAnswer(name, combine(decisions), headers, sheds)


def answer(*rules: RuleAnswer, jitter: float = 0.0) -> Answer:
    """The answer that these rules give together."""
    return Answer(all(rule.decision.allowed for rule in rules), rules, jitter)


def body_for(
    it: Answer, *, problem: bool, options: ResponseOptions | None = None
) -> tuple[str, bytes]:
    """The media type and the content of a denial."""
    denial = denial_of(it, ResponseOptions() if options is None else options)
    return denial_body(it, denial, problem=problem)
