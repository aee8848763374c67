"""What still limits when the service does not answer: one filter for all rules that fail open.

A flood may slow the service down until decisions come too late, and then it would open the rules
that fail open, as it does when the service is gone. So each caller is kept to the whole limit in
each gateway, behind the filters that ask: those see to it that hardly anything is refused here
while they are answered.

It is one filter, since which filters there are cannot be changed without replacing the listener.
So a refusal does not tell by which rule. Rules under `local` have a filter each, see `local`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.deciding import least_cost
from headgate.gateway.envoy.keys import groups_of, variants_of
from headgate.gateway.envoy.local import actions_of, backstop_bucket, descriptor_of, limiter
from headgate.gateway.envoy.matching import conditions_of
from headgate.gateway.envoy.refusals import untold_headers
from headgate.gateway.envoy.values import HttpFilter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.gateway.envoy.keys import Group
    from headgate.gateway.envoy.values import Json
    from headgate.limits import Limit
    from headgate.rules.model import Policy, Rule

NAME: Final = "backstop"


def open_backstop(rules: Sequence[Rule], policy: Policy) -> tuple[HttpFilter, ...]:
    """The filter that keeps callers of *rules*, which fail open, to their limits; none without
    rules."""
    asked: list[Json] = []
    kept: list[Json] = []
    for rule in rules:
        for group, limit in _limits(rule, policy):
            _add(rule, policy, group, limit, asked, kept)
    if not asked:
        return ()
    config = limiter(asked, kept, headers=untold_headers(), tells_wait=True)
    return (HttpFilter(NAME, config),)


def _limits(rule: Rule, policy: Policy) -> Iterator[tuple[Group, Limit]]:
    """The limits of *rule*, each with whom it is for, under a name of its own."""
    conditions = conditions_of(rule.match, policy.identity)
    for group in groups_of(rule, policy.identity):
        for place, limit in enumerate(group.limits):
            name = f"{rule.id}/{place + 1}/{group.name}"
            yield replace(group, name=name, conditions=(*conditions, *group.conditions)), limit


def _add(
    rule: Rule, policy: Policy, group: Group, limit: Limit, asked: list[Json], kept: list[Json]
) -> None:
    bucket = backstop_bucket(rule, policy, limit)
    shapes = set()
    for variant in variants_of(rule, policy.identity, joins_lines=False):
        if variant.is_lump:  # the service tells them apart
            continue
        actions = list(actions_of(group, variant, policy.identity))
        asked.append({"actions": actions, "hits_addend": {"number": least_cost(rule)}})
        keys = tuple(one.key for one in variant.entries)
        if keys not in shapes:
            shapes.add(keys)
            kept.append(descriptor_of(group, keys, bucket))
