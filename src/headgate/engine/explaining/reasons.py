"""Why a rule is not for a request: the first thing that it asks for in vain. No secret is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.identity.parts import claim_of
from headgate.rules.matching import compiled, normalised_path, readings
from headgate.rules.matching.conditions import METHOD, TIER, Enquiry, conditions_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headgate.identity import Found
    from headgate.rules.matching.conditions import Condition, Value
    from headgate.rules.model import Policy, Rule
    from headgate.rules.request import Request

SECRET: Final = "a secret"  # noqa: S105 - the words, not one
_MOST_NAMED: Final = 3
_LONGEST: Final = 80


class Reasons:
    """What the rules of *policy* miss in *request*, of whose caller this was *found*."""

    def __init__(self, policy: Policy, request: Request, found: Found) -> None:
        self._identity = policy.identity
        self._request = request
        self._found = found
        self._ways = readings(request.path)
        self.tier: Final = self._tier(policy)
        """The caller's tier as it may be shown; None if it has none."""

    def no_match(self, rule: Rule) -> str | None:
        """Why *rule* does not match, in one line; None if it does."""
        if rule.mode == "off":
            return "it is switched off (mode: off)"
        if not self.fits_path(rule):
            path = _shown(normalised_path(self._request.path))
            return f"path is {path}, expected {_any_of(rule.match.endpoints)}"
        facts = Enquiry([rule.match]).facts(self._request, self._found)
        for condition in conditions_of(rule.match):
            if not condition.holds(facts):
                return self._difference(condition, facts.get(condition.subject, ()))
        return None

    def no_limit(self, rule: Rule) -> str | None:
        """Why *rule*, which matches, has no limit for the caller; None if it has one."""
        if rule.limits_for(self._found["tier"]):
            return None
        tiers = _any_of([name for name in rule.limits if name is not None])
        said = "the caller has no tier" if self.tier is None else f"tier is {_shown(self.tier)}"
        return f"{said}, and there are limits for {tiers} only"

    def fits_path(self, rule: Rule) -> bool:
        """Whether *rule* is for the path, however it is read."""
        patterns = [compiled(endpoint) for endpoint in rule.match.endpoints]
        return not patterns or any(pattern.fits(way) for pattern in patterns for way in self._ways)

    def _tier(self, policy: Policy) -> str | None:
        """What comes from where secrets are is shown only if the policy names it as a tier."""
        tier = self._found["tier"]
        is_shown = tier is None or not claim_of(TIER, self._identity).secret
        return tier if is_shown or tier in _tiers(policy) else SECRET

    def _difference(self, condition: Condition, has: Iterable[Value]) -> str:
        subject = condition.subject
        values = [value for value in has if value is not None and not value.startswith("*.")]
        wanted = sorted(value for value in condition.values if value is not None)
        if subject == TIER:
            values = [] if self.tier is None else [self.tier]
        elif subject == METHOD:
            values = values[:1]  # its own; the others are what it counts as too
        elif self._is_secret(subject):
            return f"{subject} is there, with another value" if values else f"{subject} is missing"
        state = f"is {' and '.join(map(_shown, values))}" if values else "is missing"
        return f"{subject} {state}" + (f", expected {_any_of(wanted)}" if wanted else "")

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
