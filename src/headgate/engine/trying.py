"""What rules in shadow would have done, counted beside what the rules in force did."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING

from headgate.observability.candidates import CANDIDATES, Tried
from headgate.rules.reading import rule_to_data

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from headgate.engine.verdict import Verdict
    from headgate.observability.candidates import Spoken
    from headgate.rules.model import Policy, Rule


def put_in_force(policy: Policy, before: Policy | None = None) -> None:
    """Count for the rules in shadow of *policy*, which takes the place of *before*."""
    tried = list(_tried(policy))
    names = {one.rule_id for one in tried}
    gone = [] if before is None else [one.id for one in _shadows(before) if one.id not in names]
    if tried or gone:
        CANDIDATES.put_in_force(tried, revision=policy.revision, gone=gone)


def hear(verdict: Verdict) -> None:
    """Count what the rules in shadow said, or that a rule refused which has a candidate."""
    plan = verdict.plan
    without: Collection[str] = ()
    if plan is not None:
        if plan.blocked and plan.is_refused:  # nobody was asked but those that are blocked
            return
        if len(plan.rules) != len(verdict.rules):
            spoken = {one.rule.id for one in verdict.rules}
            without = [one.rule.id for one in plan.rules if one.rule.id not in spoken]
    said: list[Spoken] = []
    for one in verdict.rules:  # this is part of the time that a decision takes
        rule, decision = one.rule, one.decision
        is_shadow = rule.mode == "shadow"
        said.append((rule.id, one.key, is_shadow, decision.allowed, decision.source))
    CANDIDATES.hear(said, admitted=verdict.allowed, revision=verdict.revision, without=without)


def _shadows(policy: Policy) -> list[Rule]:
    return [rule for rule in policy.rules if rule.mode == "shadow" and rule.fair is None]


def _tried(policy: Policy) -> Iterator[Tried]:
    shadows = _shadows(policy)
    by_id = {rule.id: rule for rule in policy.rules} if shadows else {}
    for rule in shadows:
        live = by_id.get(rule.candidate_of or "")
        yield Tried(rule.id, rule.candidate_of, _version(rule, live))


def _version(rule: Rule, live: Rule | None) -> str:
    """What is otherwise when *rule* or its *live* rule is, but for what changes nothing that is
    counted."""
    both = [rule_to_data(one) for one in (rule, live) if one is not None]
    for data in both:
        data.pop("description", None)
        data.pop("mode", None)
    text = json.dumps(both, sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()
