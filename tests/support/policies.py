"""Policies for the tests, in few words."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from headgate.limits import TokenBucket
from headgate.policy.matcher import Matcher
from headgate.policy.model import Match, Policy, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.engine.plan import Mode
    from headgate.engine.request import Request
    from headgate.limits import Limit

LIMITS: Mapping[str | None, tuple[Limit, ...]] = MappingProxyType({None: (TokenBucket(1, 1),)})


def rule(name: str, match: Match, *, mode: Mode = "enforce") -> Rule:
    return Rule(name, match, ("ip",), LIMITS, mode=mode)


def on(*endpoints: str) -> Match:
    return Match(endpoints=endpoints)


def matcher(**matches: Match) -> Matcher:
    return Matcher(Policy(tuple(rule(name, match) for name, match in matches.items())))


def names(matching: Matcher, request: Request, tier: str | None = None) -> list[str]:
    return [each.id for each in matching.matching(request, {"tier": tier})]
