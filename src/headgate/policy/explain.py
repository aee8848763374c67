"""Explain a verdict: which rules match a request, why others do not, and which counters apply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.decision import OVERRIDE
from headgate.policy.conditions import METHOD, TIER, FactReader, conditions_of
from headgate.policy.identity.parts import claim_of
from headgate.policy.path import compiled, normalised_path, readings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.engine.plan import Queueing
    from headgate.engine.request import Request
    from headgate.engine.verdict import RuleVerdict, Verdict
    from headgate.policy.compiled import CompiledPolicy
    from headgate.policy.conditions import Condition, Value
    from headgate.policy.identity import Found
    from headgate.policy.model import Policy, Rule

__all__ = ["Explanation", "Member", "Reasons"]


# Why a rule does not match a request: the first condition that does not hold. No secret is shown.


SECRET: Final = "a secret"  # noqa: S105 - the words, not one
_MOST_NAMED: Final = 3
_LONGEST: Final = 80


class Reasons:
    """Why rules of *policy* do not match *request*, whose caller has the identity *found*."""

    def __init__(self, policy: Policy, request: Request, found: Found) -> None:
        self._identity = policy.identity
        self._request = request
        self._found = found
        self._readings = readings(request.path)
        self.tier: Final = self._tier(policy)
        """The caller's tier as it may be shown; None if it has none."""

    def no_match(self, rule: Rule) -> str | None:
        """Why *rule* does not match, in one line; None if it does."""
        if rule.mode == "off":
            return "it is switched off (mode: off)"
        if not self.fits_path(rule):
            path = _shown(normalised_path(self._request.path))
            return f"path is {path}, expected {_any_of(rule.match.endpoints)}"
        facts = FactReader([rule.match]).facts(self._request, self._found)
        for condition in conditions_of(rule.match):
            if not condition.holds(facts):
                return self._difference(condition, facts.get(condition.subject, ()))
        return None

    def no_limit(self, rule: Rule) -> str | None:
        """Why *rule*, which matches, has no limit for the caller; None if it has one."""
        if rule.limits_for(self._found["tier"]):
            return None
        tiers = _any_of([name for name in rule.limits if name is not None])
        tier = "the caller has no tier" if self.tier is None else f"tier is {_shown(self.tier)}"
        return f"{tier}, and there are limits for {tiers} only"

    def fits_path(self, rule: Rule) -> bool:
        """True if *rule* is for the path in any reading."""
        if not rule.match.endpoints:
            return True
        patterns = [compiled(endpoint) for endpoint in rule.match.endpoints]
        return any(pattern.fits(one) for pattern in patterns for one in self._readings)

    def _tier(self, policy: Policy) -> str | None:
        """The tier; from a secret source it is shown only if the policy names it."""
        tier = self._found["tier"]
        is_shown = tier is None or not claim_of(TIER, self._identity).secret
        return tier if is_shown or tier in _tiers(policy) else SECRET

    def _difference(self, condition: Condition, has: Iterable[Value]) -> str:
        subject = condition.subject
        values = [value for value in has if value is not None and not value.startswith("*.")]
        accepted = sorted(value for value in condition.values if value is not None)
        if subject == TIER:
            values = [] if self.tier is None else [self.tier]
        elif subject == METHOD:
            values = values[:1]  # its own; the others are what it counts as too
        elif self._is_secret(subject):
            return f"{subject} is there, with another value" if values else f"{subject} is missing"
        state = f"is {' and '.join(map(_shown, values))}" if values else "is missing"
        return f"{subject} {state}" + (f", expected {_any_of(accepted)}" if accepted else "")

    def _is_secret(self, subject: str) -> bool:
        kind, _, name = subject.partition(" ")
        return bool(name) and claim_of(f"{kind}:{name}", self._identity).secret


def _tiers(policy: Policy) -> Iterator[str | None]:
    yield policy.identity.sources[TIER].default
    for rule in policy.rules:
        yield from rule.match.tiers
        yield from rule.limits
        yield from () if rule.fair is None else rule.fair.weights


def _any_of(values: Iterable[str]) -> str:
    names = [_shown(value) for value in values]
    if len(names) > _MOST_NAMED + 1:
        names[_MOST_NAMED:] = [f"{len(names) - _MOST_NAMED} others"]
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _shown(value: str) -> str:
    """*value* as it is if it is plain, else in quotes."""
    cut = value if len(value) <= _LONGEST else value[:_LONGEST] + "..."
    is_plain = cut.isascii() and cut.isprintable() and " " not in cut
    return cut if (is_plain and cut) or value == SECRET else ascii(cut)


# The effect of every rule of a policy on a request. No I/O.


@dataclass(frozen=True, slots=True)
class Member:
    """A rule of the policy and its effect on the request.

    *reason* is why it does not apply, "" if it does. *account* names the owner of the counter, if
    the rule matches. *verdict* is the one it has, if it applies.
    """

    rule: Rule
    matches: bool
    reason: str = ""
    account: tuple[str, ...] = ()
    verdict: RuleVerdict | None = None
    is_near: bool = False
    """True if at least the path matches."""
    queueing: Queueing | None = None
    """The fair queue that the request waits in, if it does."""

    @property
    def applies(self) -> bool:
        """True if the rule has a verdict or a queue."""
        return self.verdict is not None or self.queueing is not None


class Explanation:
    """The *verdict* on *request*: the rules of *compiled* that apply, and why others do not.

    A policy may have many rules, so each is explained on demand.
    """

    def __init__(self, compiled: CompiledPolicy, request: Request, verdict: Verdict) -> None:
        found = compiled.identifier.find(request)
        self.compiled: Final = compiled
        self.request: Final = request
        self.verdict: Final = verdict
        self.reasons: Final = Reasons(compiled.policy, request, found)
        self.priority: Final = compiled.priority_of(request) if compiled.policy.priorities else None
        """The class of the request; None if the policy has no classes."""
        self._matching = {rule.id for rule in compiled.matching(request)}
        self._verdicts = {one.rule.id: one for one in verdict.rules}
        plan = verdict.plan
        self._planned = {one.rule.id for one in plan.rules}
        self._queueings = {one.rule.id: one for one in plan.queues}

    def all(self) -> tuple[Member, ...]:
        """Every rule, in the order of the policy."""
        return tuple(map(self.of, self.compiled.policy.rules))

    def applied(self) -> list[Member]:
        """The rules that have a verdict or a queue."""
        ids = self._verdicts.keys() | self._queueings.keys()
        return [self.of(rule) for rule in self.compiled.policy.rules if rule.id in ids]

    def not_applied(self, most: int) -> tuple[list[Member], int]:
        """The others, *most* at most, and how many there are.

        If there are more, those that match or whose path fits come first.
        """
        ids = self._verdicts.keys() | self._queueings.keys()
        others = [rule for rule in self.compiled.policy.rules if rule.id not in ids]
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
            reason=self._reason_without_verdict(rule),
            account=tuple(self.compiled.identifier.account(rule, self.request)),
            verdict=self._verdicts.get(rule.id),
            is_near=True,
            queueing=self._queueings.get(rule.id),
        )

    def _distance(self, rule: Rule) -> int:
        if rule.id in self._matching:
            return 0
        return 1 if self.reasons.fits_path(rule) else 2

    def _reason_without_verdict(self, rule: Rule) -> str:
        """Why *rule*, which matches, has no verdict and no queue; "" if it has."""
        if rule.id in self._verdicts or rule.id in self._queueings:
            return ""
        if rule.fair is not None:
            is_idle = rule.mode != "enforce"
            return "in shadow no request waits" if is_idle else "the caller has no identity"
        if self.verdict.is_replay and rule.id in self._planned:
            return "it has counted a request with this idempotency key before"
        if self.verdict.source == OVERRIDE:
            return "it is not checked, because an override blocks the caller"
        return self.reasons.no_limit(rule) or "the caller has no identity"
