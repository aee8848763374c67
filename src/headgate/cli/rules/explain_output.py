"""An explanation as text for a terminal, and as JSON with times in seconds."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from headgate.cli.rules.explanation import percent
from headgate.decision import OVERRIDE
from headgate.limits.accuracy import LEAST_CAP
from headgate.responses.bodies import limit_in_words
from headgate.terminal import bold, duration, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headgate.cli.rules.explanation import ExplainedRequest, Lines, Response
    from headgate.decision import Decision
    from headgate.engine.verdict import RuleVerdict, Verdict
    from headgate.limits import Accuracy, Limit
    from headgate.policy.explain import Member
    from headgate.policy.model import After, Rule


def accuracy_in_words(rule: Rule, limits: Sequence[Limit]) -> str | None:
    """The accuracy of *rule* with *limits*, and its replication; None if it is exact and local."""
    parts = list(_accuracy(rule.accuracy, limits))
    if rule.across_regions:
        debt = percent(rule.max_region_debt)
        text = f"usage is replicated to other regions, with a debt of up to {debt} of the limit"
        parts.append(text)
    return "; ".join(parts) or None


def outage_in_words(rule: Rule) -> str:
    """The decisions of *rule* while the store is unavailable."""
    share = rule.on_failure.share
    part = "the limit" if share == 1 else f"{percent(share or 0)} of the limit"
    if rule.on_failure.mode == "fail_closed":
        return "without the store it is denied (fail_closed)"
    if rule.on_failure.mode == "local":
        return f"without the store each process enforces {part} by itself (local)"
    text = f"without the store it is allowed, up to {part} in each process (fail_open)"
    if rule.on_failure.open_ns is None:
        return text
    return f"{text}; after {duration(rule.on_failure.open_ns)}: {rule.on_failure.then}"


def _accuracy(accuracy: Accuracy, limits: Sequence[Limit]) -> Iterator[str]:
    if not accuracy.is_exact:
        yield _saving(accuracy, limits)
    if accuracy.split > 1:
        yield f"each counter is split into {accuracy.split} on different shards"
    if accuracy.remembers_ns:
        yield f"a denial is cached for up to {duration(accuracy.remembers_ns)}"


def _saving(accuracy: Accuracy, limits: Sequence[Limit]) -> str:
    caps = [cap for limit in limits if (cap := accuracy.cap(limit.quota)) is not None]
    if caps and max(caps) < LEAST_CAP:
        return f"exact: {percent(accuracy.max_overshoot or 0)} of it is too little for a lease"
    most = [f"{cap} over the limit in all" for cap in caps[:1]]
    if accuracy.batch is not None:
        most.append(f"{accuracy.batch} for each process")
    bound = f", at most {' and '.join(most)}" if most else ""
    if accuracy.sync_ns is not None:
        often = duration(accuracy.sync_ns)
        return f"each process decides by itself and reports to the store every {often}{bound}"
    return f"hot keys are served from leases{bound}"


_MOST_LISTED: Final = 20
_WIDTH: Final = 12
_FIGURES: Final = ("allowed", "remaining", "retry_after", "reset_after", "delay")
_EMPTY: Final = "empty at the start (--store URL reads yours)"
_GATEWAY: Final = {
    "exact": "asks the service about every request (exact)",
    "quota": "enforces the quota that the service assigns (quota)",
    "local": "limits by itself (local)",
}


def explain_text(explanation: ExplainedRequest, *, nth: int, is_live: bool, shows_all: bool) -> str:
    """The whole *explanation* of the *nth* such request."""
    parts = ["\n".join(_request(explanation, nth=nth, is_live=is_live))]
    matching = [member for member in explanation.members if member.matches]
    parts += ["\n".join(_matching(member, explanation)) for member in matching]
    others = [member for member in explanation.members if not member.matches]
    if others:
        parts.append("\n".join(_unmatched(others, shows_all=shows_all)))
    parts.append("\n".join(_outcome(explanation)))
    return "\n\n".join(parts)


def _request(explanation: ExplainedRequest, *, nth: int, is_live: bool) -> Iterator[str]:
    request = explanation.request
    to = f" on {printable(request.host)}" if request.host else ""
    title = (
        f"{printable(request.method)} {printable(request.path)}{to} from {printable(request.peer)}"
    )
    yield bold(title if nth == 1 else f"{title}, the {_ordinal(nth)} at the same time")
    if explanation.path != request.path:
        yield _field("read as", printable(explanation.path))
    if explanation.others:
        ways = ", ".join(map(printable, explanation.others))
        yield _field("or as", f"{ways}: servers differ, so rules for any of these paths match")
    if explanation.priority is not None:
        yield _field("class", explanation.priority)
    yield _field("counters", "those of the store now" if is_live else _EMPTY)


def _matching(member: Member, explanation: ExplainedRequest) -> Iterator[str]:
    rule, verdict = member.rule, member.verdict
    soft = explanation.soft.get(rule.id, ())
    mark = _mark(rule)
    opinion = f"does not apply: {member.reason}" if verdict is None else _opinion(verdict)
    if member.queueing is not None:
        opinion = "queues it"
    yield f"{bold(rule.id)}{mark} {opinion}"
    if rule.description:
        yield _field("about", printable(" ".join(rule.description.split())))
    label = "counted by"
    for line in member.account:
        yield _field(label, printable(line, keeps_backslashes=True))
        label = ""
    if verdict is not None:
        yield from _figures(verdict, explanation.tier, soft)
    elif member.queueing is not None:
        yield _field("key", member.queueing.key)
        yield from (_field(*line) for line in soft)
        yield _field("cost", str(member.queueing.cost))


def _mark(rule: Rule) -> str:
    if rule.candidate_of is not None:
        return f" ({rule.mode}, candidate of {rule.candidate_of})"
    return f" ({rule.mode})" if rule.mode != "enforce" else ""


def _figures(verdict: RuleVerdict, tier: str | None, soft: Lines) -> Iterator[str]:
    rule: Rule = verdict.rule.declared
    yield _field("key", verdict.key)
    if any(name is not None for name in rule.limits):
        yield _field("tier", "none" if tier is None else printable(tier))
    for part in verdict.decision.limits:
        yield _field("limit", _limit(part, verdict.cost))
    yield from (_field(*line) for line in soft)
    yield _field("cost", str(verdict.cost))
    if rule.cost.after is not None:
        yield _field("afterwards", _after(rule.cost.after))
    if rule.headers != "on":
        what = "its name and when to retry" if rule.headers == "brief" else None
        sent = "callers do not see it" if what is None else f"callers see {what}"
        yield _field("headers", f"{rule.headers}: {sent}")
    kept = accuracy_in_words(rule, [part.limit for part in verdict.decision.limits])
    if kept is not None:
        yield _field("accuracy", kept)
    yield _field("outage", outage_in_words(rule))
    if rule.decide is not None:
        yield _field("gateway", _GATEWAY[rule.decide])


def _after(after: After) -> str:
    source = "the bytes of its body" if after.header is None else f"its header {after.header}"
    units = "" if after.per == 1 else f", one for every {after.per} begun"
    most = "" if after.most is None else f", at most {after.most}"
    return f"charged by the response: {source}{units}{most}, minus the cost"


def _opinion(verdict: RuleVerdict) -> str:
    decision = verdict.decision
    if decision.allowed:
        later = f" after {duration(decision.delay_ns)}" if decision.delay_ns else ""
        return "would allow it" if verdict.is_shadow else f"allows it{later}"
    wait = decision.retry_after_ns
    when = "always: the cost exceeds the limit" if wait is None else f"for {duration(wait)}"
    why = ": the key is blocked" if decision.source == OVERRIDE else ""
    return f"would deny it {when}{why}" if verdict.is_shadow else f"denies it {when}{why}"


def _limit(part: Decision, cost: int) -> str:
    words = limit_in_words(part.limit)
    if part.allowed:
        left = f"{part.remaining} left after it" if cost else f"{part.remaining} left"
    else:
        left = f"{part.remaining} left"
    return f"{part.limit} ({words}): {left}"


def _unmatched(members: list[Member], *, shows_all: bool) -> Iterator[str]:
    yield bold("Rules that do not match:")
    near = sorted(members, key=lambda member: not member.is_near)
    shown = members if shows_all or len(members) <= _MOST_LISTED else near[:_MOST_LISTED]
    width = max(len(member.rule.id) for member in shown)
    for member in shown:
        yield f"  {member.rule.id.ljust(width)}  {printable(member.reason, keeps_backslashes=True)}"
    if len(shown) < len(members):
        yield f"  and {len(members) - len(shown)} more; --all lists them"


def _outcome(explanation: ExplainedRequest) -> Iterator[str]:
    has_queue = any(member.queueing is not None for member in explanation.members)
    yield bold(_sentence(explanation.verdict, has_queue=has_queue))
    response = explanation.response
    if response.status is None and not response.headers:
        yield (
            "Apps add Headgate-Queue with the state of the queue to the response."
            if has_queue
            else "No headers are added to the response."
        )
        return
    yield "Headers added to the response:" if response.status is None else "The response:"
    yield ""
    yield from (f"  {line}".rstrip() for line in _lines(response))


def _sentence(verdict: Verdict, *, has_queue: bool) -> str:
    denying = verdict.denied_by
    if denying is not None:
        wait = verdict.retry_after_ns
        when = "a retry cannot succeed" if wait is None else f"retry in {duration(wait)}"
        return f"Denied by {denying.rule.id}; {when}."
    if verdict.is_replay:
        return "Allowed: a request with this idempotency key was counted before."
    later = f" after a wait of {duration(verdict.delay_ns)}" if verdict.delay_ns else ""
    if has_queue:
        later += " and, in apps, in its queue" if later else ", in apps through a queue"
    why = f"{later}." if verdict.enforced or has_queue else ": no enforced rule applies."
    shadows = ", ".join(one.rule.id for one in verdict.would_deny)
    return f"Allowed{why}" + (
        f" If enforced, these shadow rules would deny it: {shadows}." if shadows else ""
    )


def _lines(response: Response) -> Iterator[str]:
    if response.status is not None:
        yield f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"
    yield from (f"{name}: {value}" for name, value in response.headers)
    if response.body:
        yield ""
        yield response.body.decode()


def _field(label: str, text: str) -> str:
    return f"  {label.ljust(_WIDTH)}{text}"


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


# JSON.


def explain_json(explanation: ExplainedRequest) -> str:
    """The whole *explanation*, without headers of the request, which may contain secrets."""
    verdict, request = explanation.verdict, explanation.request
    denying = verdict.denied_by
    content = {
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
        "response": _response_json(explanation.response),
    }
    return json.dumps(content, indent=2)


def _member(member: Member, soft: Lines) -> dict[str, Any]:
    """One rule; *soft* are its notes about delays, slots, queues and pressure."""
    rule, verdict, queueing = member.rule, member.verdict, member.queueing
    content: dict[str, Any] = {
        "id": rule.id,
        "mode": rule.mode,
        "candidate_of": rule.candidate_of,
        "matches": member.matches,
        "applies": member.applies,
        "reason": member.reason or None,
    }
    if queueing is not None:
        content |= {
            "account": list(member.account),
            "key": queueing.key,
            "cost": queueing.cost,
            "weight": queueing.weight,
        }
    elif verdict is not None:
        decision = verdict.decision
        content |= {
            "account": list(member.account),
            "on_store_failure": rule.on_failure.mode,
            "kept": accuracy_in_words(rule, [part.limit for part in decision.limits]),
            "outage": outage_in_words(rule),
            "headers": rule.headers,
            "decide": rule.decide,
            "cost_after": _after_json(rule.cost.after),
            "key": verdict.key,
            "cost": verdict.cost,
            "allowed": decision.allowed,
            "retry_after": decision.retry_after,
            "source": decision.source,
            "limits": [_limit_json(part) for part in decision.limits],
        }
    return content | ({"soft": dict(soft)} if soft else {})


def _after_json(after: After | None) -> dict[str, Any] | None:
    if after is None:
        return None
    is_by_bytes = after.header is None
    return {"header": after.header, "bytes": is_by_bytes, "per": after.per, "max": after.most}


def _limit_json(part: Decision) -> dict[str, Any]:
    return {
        "limit": str(part.limit),
        "algorithm": part.limit.algorithm,
        "quota": part.limit.quota,
        **{name: getattr(part, name) for name in _FIGURES},
    }


def _response_json(response: Response) -> dict[str, Any]:
    return {
        "status": response.status,
        "headers": [list(line) for line in response.headers],
        "body": json.loads(response.body) if response.body else None,
    }
