"""A verdict as JSON data for callers of the API."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from headgate.engine.tracing import limit_in_words, traced_lines
from headgate.responses import encoded_lines
from headgate.responses.debug import DEBUG
from headgate.service.core import is_debugged
from headgate.units import milliseconds_up, seconds_up

if TYPE_CHECKING:
    from headgate.engine.verdict import RuleVerdict, Verdict
    from headgate.limits import Limit
    from headgate.service.core import Core
    from headgate.service.http.replies import Reply, Scope


def denial_json(verdict: Verdict) -> dict[str, Any]:
    """The keys of `verdict_json` for a denial that may be passed on to the client.

    Rules that hide their figures are not listed.
    """
    shown = tuple([one for one in verdict.rules if one.rule.headers == "on"])
    binding = verdict.denied_by
    if binding is not None and binding.rule.headers == "on":
        pairs = zip(verdict.plan.rules, verdict.decisions, strict=True)
        decisions = [decision if one.rule.headers == "on" else None for one, decision in pairs]
        return verdict_json(verdict.with_decisions(decisions, allowed=False))
    hidden = dict.fromkeys(("limit", "quota", "remaining", "retry_after", "retry_after_ms"))
    return {
        "allowed": False,
        **hidden,
        "reset_after": 0.0,
        "source": verdict.source,
        "revision": verdict.revision,
        "rules": [_rule(one) for one in shown],
    }


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


@lru_cache(maxsize=1024)
def limit_text(limit: Limit) -> str:
    """The notation of *limit* in rules, or words if it has none."""
    return limit_in_words(limit)


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
        "limit": limit_text(decision.limit),
        "quota": decision.limit.quota,
        "cost": one.cost,
        "allowed": decision.allowed,
        "remaining": decision.remaining,
        "retry_after_ms": None if wait is None else milliseconds_up(wait),
        **({"is_estimate": True} if decision.is_estimate else {}),
        "reset_after": decision.reset_after,
        "source": decision.source,
    }


# Debug headers for callers with a token.


_FIELD: Final = DEBUG.lower().encode()


def debugged(core: Core, scope: Scope, verdict: Verdict, reply: Reply) -> Reply:
    """Add the trace of the decision to *reply* if the request has a valid debug token."""
    for name, value in scope["headers"]:
        if name == _FIELD and is_debugged(core, value.decode("latin-1")):
            ours = encoded_lines(traced_lines([verdict], core.hash_key))
            reply.headers.extend(line for line in ours if line not in reply.headers)
            break
    return reply
