"""Every rule of a policy, and what it has to do with a request. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.decisions import OVERRIDE
from headgate.engine.explaining.reasons import Reasons

if TYPE_CHECKING:
    from headgate.engine.engine import Engine
    from headgate.engine.plan import Queueing
    from headgate.engine.verdict import RuleVerdict, Verdict
    from headgate.rules.model import Rule
    from headgate.rules.request import Request


@dataclass(frozen=True, slots=True)
class Member:
    """A rule of the policy and what it has to do with the request.

    *reason* says why it does not apply, "" if it does. *account* says whose counter it is, if the
    rule matches. *said* is what it said, if it applies.
    """

    rule: Rule
    matches: bool
    reason: str = ""
    account: tuple[str, ...] = ()
    said: RuleVerdict | None = None
    is_near: bool = False
    """Whether at least the path is one that the rule is for."""
    turn: Queueing | None = None
    """How it takes turns under the rule, if it does."""

    @property
    def applies(self) -> bool:
        """Whether the rule has a say, or gives a turn."""
        return self.said is not None or self.turn is not None


class Membership:
    """Which rules of *engine* are for *request*, of which *verdict* came, and why others are not.

    A policy may have many rules, so what is to be known of one is found out when it is asked for.
    """

    def __init__(self, engine: Engine, request: Request, verdict: Verdict) -> None:
        self.reasons: Final = Reasons(engine.policy, request, engine.identifier.find(request))
        self._engine = engine
        self._request = request
        self._verdict = verdict
        self._matching = {rule.id for rule in engine.matching(request)}
        self._said = {one.rule.id: one for one in verdict.rules}
        plan = verdict.plan or engine.plan(request)
        self._planned = {one.rule.id for one in plan.rules}
        self._turns = {one.rule.id: one for one in plan.queues}

    def all(self) -> tuple[Member, ...]:
        """Every rule, in the order of the policy."""
        return tuple(map(self.of, self._engine.policy.rules))

    def applied(self) -> list[Member]:
        """The rules that have a say, or give a turn."""
        ids = self._said.keys() | self._turns.keys()
        return [self.of(rule) for rule in self._engine.policy.rules if rule.id in ids]

    def not_applied(self, most: int) -> tuple[list[Member], int]:
        """The others, *most* at most, and how many there are.

        Of more than that those are told that are nearest: that match, or whose path fits.
        """
        ids = self._said.keys() | self._turns.keys()
        others = [rule for rule in self._engine.policy.rules if rule.id not in ids]
        shown = others
        if len(others) > most:
            nearest = {id(rule) for rule in sorted(others, key=self._distance)[:most]}
            shown = [rule for rule in others if id(rule) in nearest]
        return [self.of(rule) for rule in shown], len(others)

    def of(self, rule: Rule) -> Member:
        """One rule of the policy."""
        if rule.id not in self._matching:
            reason = self.reasons.no_match(rule) or ""
            return Member(rule, matches=False, reason=reason, is_near=self.reasons.fits_path(rule))
        return Member(
            rule,
            matches=True,
            reason=self._why_silent(rule),
            account=tuple(self._engine.identifier.account(rule, self._request)),
            said=self._said.get(rule.id),
            is_near=True,
            turn=self._turns.get(rule.id),
        )

    def _distance(self, rule: Rule) -> int:
        if rule.id in self._matching:
            return 0
        return 1 if self.reasons.fits_path(rule) else 2

    def _why_silent(self, rule: Rule) -> str:
        """Why *rule*, which matches, has no say and gives no turn; "" if it does."""
        if rule.id in self._said or rule.id in self._turns:
            return ""
        if rule.fair is not None:
            is_idle = rule.mode != "enforce"
            return "in shadow nobody takes turns" if is_idle else "it is not known whose turn it is"
        if self._verdict.is_replay and rule.id in self._planned:
            return "it has counted a request with this idempotency key before"
        if self._verdict.source == OVERRIDE:
            return "it is not asked, as another one is blocked"
        return self.reasons.no_limit(rule) or "it is not known whose counter it is"
