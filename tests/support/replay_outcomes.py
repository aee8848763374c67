"""Outcomes as a replay makes them, small enough to read."""

from __future__ import annotations

from headgate.simulator.results import KeyResult, Outcome, RuleResult

SECOND = 1_000_000_000
MIDNIGHT = 1_763_251_200 * SECOND
HOSTILE = '</script><img src=x onerror=alert(1)>&"\x1b[31m\n$a$_{b}^\\frac'


def rule(
    rule_id: str = "per-tenant",
    *,
    mode: str = "enforce",
    limit: str = "100/s",
    allowed: tuple[int, ...] = (10, 20, 10),
    denied: tuple[int, ...] = (0, 5, 1),
    keys: int = 4,
    top: tuple[tuple[str, int, int], ...] = (("acme", 20, 5), ("globex", 6, 1)),
    keys_denied: int | None = None,
) -> RuleResult:
    """A rule that denied the keys of *top*: (key, requests, denied)."""
    return RuleResult(
        rule_id=rule_id,
        mode=mode,
        limit=limit,
        requests=sum(allowed) + sum(denied),
        allowed=sum(allowed),
        denied=sum(denied),
        keys=keys,
        keys_denied=len(top) if keys_denied is None else keys_denied,
        first_denied_ns=MIDNIGHT + 61 * SECOND if any(denied) else None,
        top_denied=tuple(KeyResult(*one) for one in top),
        allowed_series=allowed,
        denied_series=denied,
    )


def outcome(
    *rules: RuleResult,
    name: str = "old.yaml",
    allowed: tuple[int, ...] = (10, 20, 10),
    denied: tuple[int, ...] = (0, 5, 1),
    callers: int = 4,
    callers_denied: int = 2,
    began_ns: int = MIDNIGHT,
    step_ns: int = 60 * SECOND,
    retries: int = 0,
    skipped: int = 0,
) -> Outcome:
    """What a policy of *rules* made of a few minutes."""
    return Outcome(
        policy_name=name,
        revision=7,
        began_ns=began_ns,
        ended_ns=began_ns + len(allowed) * step_ns,
        step_ns=step_ns,
        requests=sum(allowed) + sum(denied),
        allowed=sum(allowed),
        denied=sum(denied),
        callers=callers,
        callers_denied=callers_denied,
        allowed_series=allowed,
        denied_series=denied,
        rules=rules,
        retries=retries,
        skipped=skipped,
        took_s=0.1,
    )
