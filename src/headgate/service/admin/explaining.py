"""What becomes of a request, and why: without counting it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from headgate.engine.explaining import Membership
from headgate.holding import new_name
from headgate.service.http.asked import TO_CHECK, read_asked
from headgate.service.http.portrait import limit_text
from headgate.service.http.replies import Reply, json_reply

if TYPE_CHECKING:
    from headgate.decisions import Decision
    from headgate.engine import Engine, Verdict
    from headgate.engine.explaining import Member
    from headgate.rules.request import Request
    from headgate.service.admin.call import Call
    from headgate.service.core import Core

Data = dict[str, Any]

MOST_LISTED: Final = 200
"""How many rules that do not apply are told; of more, those that come nearest."""


class ExplainCalls:
    """Explains by the rules in force, with the counters as they are."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def explained(self, call: Call) -> Reply:
        """POST /explain: the body is that of a check."""
        call.query()
        asked = read_asked(await call.document(), TO_CHECK)
        rules = self._core.engine
        engine = rules.in_force.engine
        lease = new_name() if engine.has_slots else None
        plan = engine.plan(asked.request, cost=asked.cost, lease=lease)
        verdict = await rules.runner.decide(plan, consume=False)
        # There may be thousands of rules to find reasons for: not while others wait.
        content = await asyncio.to_thread(self._content, engine, asked.request, verdict)
        return json_reply(content)

    def _content(self, engine: Engine, request: Request, verdict: Verdict) -> Data:
        membership = Membership(engine, request, verdict)
        others, count = membership.not_applied(MOST_LISTED)
        refusing = verdict.denied_by
        applied = membership.applied()
        return {
            "allowed": verdict.allowed,
            "denied_by": None if refusing is None else refusing.rule.id,
            "retry_after": verdict.retry_after,
            "delay": verdict.delay,
            "is_replay": verdict.is_replay,
            "revision": verdict.revision,
            "source": verdict.source if verdict.enforced else None,  # as a check says it
            "identity": engine.identifier.shown(request) | {"tier": membership.reasons.tier},
            "priority": engine.priority_of(request) if engine.policy.priorities else None,
            "rules": [self._applied(member) for member in applied],
            "not_applied": [_not_applied(member) for member in others],
            "not_applied_count": count,
        }

    def _applied(self, member: Member) -> Data:
        rule, said, turn = member.rule, member.said, member.turn
        content: Data = {"rule_id": rule.id, "mode": rule.mode}
        if turn is not None:
            return content | {
                "key": self._core.show_key(turn.key),
                "cost": turn.cost,
                "allowed": True,
                "limits": [],
                "source": None,
                "denies": False,
                "turn": {"weight": turn.weight},
            }
        if said is None:
            raise RuntimeError(f"the rule {rule.id!r} has nothing to say")
        decision = said.decision
        return content | {
            "key": self._core.show_key(said.key),
            "cost": said.cost,
            "allowed": decision.allowed,
            "limits": [_limit(part) for part in decision.limits],
            "source": decision.source,
            "denies": not decision.allowed and not said.is_shadow,
        }


def _limit(part: Decision) -> Data:
    return {
        "limit": limit_text(part.limit),
        "allowed": part.allowed,
        "remaining": part.remaining,
        "retry_after": part.retry_after,
        "reset_after": part.reset_after,
    }


def _not_applied(member: Member) -> Data:
    return {"rule_id": member.rule.id, "mode": member.rule.mode, "why": member.reason}
