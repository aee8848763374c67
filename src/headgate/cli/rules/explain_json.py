"""An explanation as JSON. Times are in seconds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headgate.cli.rules.explain_text import accuracy_in_words, outage_in_words

if TYPE_CHECKING:
    from headgate.cli.rules.explanation import Explanation, Lines, Response
    from headgate.decision import Decision
    from headgate.engine.plan import Queueing
    from headgate.engine.verdict import RuleVerdict
    from headgate.policy.explain import Member
    from headgate.policy.model import After


def explain_json(explanation: Explanation) -> str:
    """The whole *explanation*, without headers of the request, which may contain secrets."""
    verdict, request = explanation.verdict, explanation.request
    denying = verdict.denied_by
    shown = {
        "allowed": verdict.allowed,
        "denied_by": None if denying is None else denying.rule.id,
        "retry_after": verdict.retry_after,
        "is_replay": verdict.is_replay,
        "request": {
            "method": request.method,
            "path": request.path,
            "host": request.host,
            "peer": request.peer,
            "read_as": [explanation.path, *explanation.others],
            "tier": explanation.tier,
            "class": explanation.priority,
        },
        "delay": verdict.delay,
        "rules": [
            _member(member, explanation.soft.get(member.rule.id, ()))
            for member in explanation.members
        ],
        "response": _response(explanation.response),
    }
    return json.dumps(shown, indent=2)


def _member(member: Member, soft: Lines) -> dict[str, Any]:
    rule, said = member.rule, member.said
    known = {
        "id": rule.id,
        "mode": rule.mode,
        "candidate_of": rule.candidate_of,
        "matches": member.matches,
        "applies": member.applies,
        "reason": member.reason or None,
    }
    if member.turn is not None:
        return known | {"account": list(member.account), **_turn(member.turn), **_soft(soft)}
    if said is None:
        return known
    return known | {
        "account": list(member.account),
        "on_store_failure": rule.on_store_failure,
        "kept": accuracy_in_words(rule, [part.limit for part in said.decision.limits]),
        "outage": outage_in_words(rule),
        "headers": rule.headers,
        "decide": rule.decide,
        "cost_after": _after(rule.cost.after),
        **_verdict(said),
        **_soft(soft),
    }


def _soft(lines: Lines) -> dict[str, Any]:
    """Notes about delays, slots, queues and pressure."""
    return {"soft": dict(lines)} if lines else {}


def _turn(turn: Queueing) -> dict[str, Any]:
    return {"key": turn.key, "cost": turn.cost, "weight": turn.weight}


def _after(after: After | None) -> dict[str, Any] | None:
    if after is None:
        return None
    is_by_bytes = after.header is None
    return {"header": after.header, "bytes": is_by_bytes, "per": after.per, "max": after.most}


def _verdict(said: RuleVerdict) -> dict[str, Any]:
    return {
        "key": said.key,
        "cost": said.cost,
        "allowed": said.decision.allowed,
        "retry_after": said.decision.retry_after,
        "source": said.decision.source,
        "limits": [_limit(part) for part in said.decision.limits],
    }


def _limit(part: Decision) -> dict[str, Any]:
    return {
        "limit": str(part.limit),
        "algorithm": part.limit.algorithm,
        "quota": part.limit.quota,
        "allowed": part.allowed,
        "remaining": part.remaining,
        "retry_after": part.retry_after,
        "reset_after": part.reset_after,
        "delay": part.delay,
    }


def _response(response: Response) -> dict[str, Any]:
    return {
        "status": response.status,
        "headers": [list(line) for line in response.headers],
        "body": json.loads(response.body) if response.body else None,
    }
