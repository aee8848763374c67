"""What came of a request, noted in the journal of this process."""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import replace
from hashlib import blake2b
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from headgate.observability import JOURNAL, Decided, Said
from headgate.observability.candidates import CANDIDATES, Tried
from headgate.observability.journal import BOUNDS_NS
from headgate.policy.loader import rule_to_data

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from headgate.engine.verdict import RuleVerdict, Verdict
    from headgate.observability.candidates import Spoken
    from headgate.observability.journal import Outcome
    from headgate.policy.model import Policy, Rule


# What rules in shadow would have done, counted beside what the rules in force did.


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


_OUTCOMES: Final[dict[tuple[bool, bool], Outcome]] = {
    (False, True): "allowed",
    (False, False): "denied",
    (True, True): "shadow_allowed",
    (True, False): "shadow_denied",
}

begin: Final = perf_counter_ns
"""What the time that a decision took is counted from."""


def note(verdict: Verdict, began_ns: int) -> Verdict:
    """Note *verdict*, which was asked for at *began_ns*; it is returned."""
    journal = JOURNAL
    took_ns = perf_counter_ns() - began_ns
    journal.latency[bisect_left(BOUNDS_NS, took_ns)] += 1
    journal.latency_ns += took_ns
    is_admitted = verdict.allowed
    if not is_admitted or verdict.plan is None or not verdict.plan.awaits_turns:
        journal.requests[is_admitted][0] += 1
    is_tried = refuses = False
    for one in verdict.rules:
        rule, decision = one.rule, one.decision
        is_shadow = rule.mode == "shadow"
        if is_admitted and not is_shadow:  # then it has allowed, and need not be asked
            source = decision.source
            cell = journal.cells.get((rule.id, "allowed", source))
            if cell is None:
                cell = journal.cell(rule.id, "allowed", source)
            cell[0] += 1
            journal.until_sampled -= 1
            if journal.until_sampled <= 0:
                journal.sample(rule.id, one.key)
            continue
        allowed = decision.allowed
        journal.note(rule.id, _OUTCOMES[is_shadow, allowed], decision.source, one.key)
        if not allowed:
            refuses = True
        is_tried = is_tried or is_shadow or (not allowed and rule.id in CANDIDATES.beside)
    if is_tried:
        hear(verdict)
    if journal.listeners or (refuses and journal.refusal_listeners):
        _tell(verdict, took_ns)
    return verdict


def note_further() -> None:
    """Note that a request which was noted now had been admitted before, at another place: it is one
    request."""
    JOURNAL.asked_again[0] += 1


def note_turns(verdict: Verdict) -> None:
    """Note that a request with *verdict* has had its turns everywhere: now it is admitted."""
    JOURNAL.requests[True][0] += 1
    if verdict.plan is not None:
        for one in verdict.plan.queues:
            JOURNAL.note(one.rule.id, "allowed", "gate", one.key)


def note_refusal(verdict: Verdict, source: str) -> Verdict:
    """Note a *verdict* that refuses without any limit having been asked: by a gate, or a shedder,
    as *source* says. It is returned.

    How long its request waited says nothing of how quickly is decided: that is not noted.
    """
    JOURNAL.requests[False][0] += 1
    for one in verdict.rules:
        JOURNAL.note(one.rule.id, "denied", source, one.key)
    if JOURNAL.is_heard(refuses=True):
        said = tuple([replace(said_of(one), source=source) for one in verdict.rules])
        JOURNAL.tell(Decided(verdict.allowed, source, verdict.revision, 0, said))
    return verdict


def _tell(verdict: Verdict, took_ns: int) -> None:
    said = tuple([said_of(one) for one in verdict.rules])
    JOURNAL.tell(Decided(verdict.allowed, verdict.source, verdict.revision, took_ns, said))


def said_of(one: RuleVerdict) -> Said:
    """What listeners are told of a rule."""
    decision = one.decision
    return Said(
        one.rule.id,
        _OUTCOMES[one.is_shadow, decision.allowed],
        decision.source,
        one.key,
        one.cost,
        decision.remaining,
        decision.retry_after_ns,
    )
