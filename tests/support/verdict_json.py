"""A verdict as JSON data, from its properties: the reference for the encoder of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.engine.tracing import limit_in_words
from headgate.units import milliseconds_up, seconds_up

if TYPE_CHECKING:
    from headgate.engine.verdict import RuleVerdict, Verdict


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """All results of a request. *limit* is the tightest rule, as in the body of a denial.
    *is_estimate* is present if `retry_after` is one, *delay_ms* if the request has to wait.

    For the code that enforces: includes shadow rules and rules that hide their figures.
    """
    decision = verdict.decision
    binding = _binding(verdict)
    wait, delay = verdict.retry_after_ns, verdict.delay_ns
    return {
        "allowed": verdict.allowed,
        "limit": None if binding is None else binding.rule.id,
        "quota": None if binding is None else binding.decision.limit.quota,
        "remaining": None if decision is None else decision.remaining,
        "retry_after": None if wait is None else seconds_up(wait),
        "retry_after_ms": None if wait is None else milliseconds_up(wait),
        **({"is_estimate": True} if verdict.is_estimate else {}),
        **({"delay_ms": milliseconds_up(delay)} if delay else {}),
        "reset_after": 0.0 if decision is None else decision.reset_after,
        "source": None if decision is None else verdict.source,
        "revision": verdict.revision,
        "rules": [_rule(one) for one in verdict.rules],
    }


def _binding(verdict: Verdict) -> RuleVerdict | None:
    if not verdict.allowed:
        return verdict.denied_by
    return min(verdict.enforced, key=lambda one: one.decision.remaining, default=None)


def _rule(one: RuleVerdict) -> dict[str, Any]:
    decision = one.decision
    wait = decision.retry_after_ns
    return {
        "id": one.rule.id,
        "mode": one.rule.mode,
        "limit": limit_in_words(decision.limit),
        "quota": decision.limit.quota,
        "cost": one.cost,
        "allowed": decision.allowed,
        "remaining": decision.remaining,
        "retry_after_ms": None if wait is None else milliseconds_up(wait),
        **({"is_estimate": True} if decision.is_estimate else {}),
        "reset_after": decision.reset_after,
        "source": decision.source,
    }
