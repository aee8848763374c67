"""An explanation for people."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headgate.cli.rules.keeping import keeping_in_words, outage_in_words
from headgate.cli.rules.texts import visible
from headgate.cli.terminal import bold, duration, printable
from headgate.decisions import OVERRIDE
from headgate.responses.words import limit_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.cli.rules.explanation import Explanation, Lines, Response
    from headgate.decisions import Decision
    from headgate.engine import RuleVerdict, Verdict
    from headgate.engine.explaining import Member
    from headgate.rules.model import After, Rule

_MOST_LISTED: Final = 20
_WIDTH: Final = 12
_EMPTY: Final = "empty to begin with (--store URL looks at yours)"
_GATEWAY: Final = {
    "exact": "it asks the service about every request (exact)",
    "quota": "it enforces the share that the service assigns (quota)",
    "local": "it limits by itself (local)",
}


def portrait(explanation: Explanation, *, nth: int, is_live: bool, shows_all: bool) -> str:
    """All of *explanation*, of the *nth* such request."""
    parts = ["\n".join(_request(explanation, nth=nth, is_live=is_live))]
    matching = [member for member in explanation.members if member.matches]
    parts += ["\n".join(_matching(member, explanation)) for member in matching]
    others = [member for member in explanation.members if not member.matches]
    if others:
        parts.append("\n".join(_unmatched(others, shows_all=shows_all)))
    parts.append("\n".join(_outcome(explanation)))
    return "\n\n".join(parts)


def _request(explanation: Explanation, *, nth: int, is_live: bool) -> Iterator[str]:
    asked = explanation.request
    to = f" on {printable(asked.host)}" if asked.host else ""
    title = f"{printable(asked.method)} {printable(asked.path)}{to} from {printable(asked.peer)}"
    yield bold(title if nth == 1 else f"{title}, the {_ordinal(nth)} time at the same moment")
    if explanation.path != asked.path:
        yield _field("read as", printable(explanation.path))
    if explanation.others:
        ways = ", ".join(map(printable, explanation.others))
        yield _field("or as", f"{ways}: servers differ, so rules for any of them match")
    if explanation.priority is not None:
        yield _field("class", explanation.priority)
    yield _field("counters", "those in the store, as they are now" if is_live else _EMPTY)


def _matching(member: Member, explanation: Explanation) -> Iterator[str]:
    rule, said = member.rule, member.said
    soft = explanation.soft.get(rule.id, ())
    mark = _mark(rule)
    opinion = f"does not apply: {member.reason}" if said is None else _opinion(said)
    if member.turn is not None:
        opinion = "lets it take its turn"
    yield f"{bold(rule.id)}{mark} {opinion}"
    if rule.description:
        yield _field("about", printable(" ".join(rule.description.split())))
    label = "counted by"
    for line in member.account:
        yield _field(label, visible(line))
        label = ""
    if said is not None:
        yield from _figures(said, explanation.tier, soft)
    elif member.turn is not None:
        yield _field("key", member.turn.key)
        yield from (_field(*line) for line in soft)
        yield _field("cost", str(member.turn.cost))


def _mark(rule: Rule) -> str:
    if rule.candidate_of is not None:
        return f" ({rule.mode}, candidate of {rule.candidate_of})"
    return f" ({rule.mode})" if rule.mode != "enforce" else ""


def _figures(said: RuleVerdict, tier: str | None, soft: Lines) -> Iterator[str]:
    rule = said.rule
    yield _field("key", said.key)
    if any(name is not None for name in rule.limits):
        yield _field("tier", "none" if tier is None else printable(tier))
    for part in said.decision.limits:
        yield _field("limit", _limit(part, said.cost))
    yield from (_field(*line) for line in soft)
    yield _field("cost", str(said.cost))
    if rule.cost.after is not None:
        yield _field("afterwards", _after(rule.cost.after))
    if rule.headers != "on":
        yield _field("headers", f"{rule.headers}: callers are not told of it")
    kept = keeping_in_words(rule, [part.limit for part in said.decision.limits])
    if kept is not None:
        yield _field("kept", kept)
    yield _field("outage", outage_in_words(rule))
    if rule.decide is not None:
        yield _field("gateway", _GATEWAY[rule.decide])


def _after(after: After) -> str:
    source = "the bytes of its body" if after.header is None else f"what {after.header} says"
    units = "" if after.per == 1 else f", one for every {after.per} begun"
    most = "" if after.most is None else f", at most {after.most}"
    return f"what the response makes it: {source}{units}{most}; the cost is taken off"


def _opinion(said: RuleVerdict) -> str:
    decision = said.decision
    if decision.allowed:
        later = f" after {duration(decision.delay_ns)}" if decision.delay_ns else ""
        return "would allow it" if said.is_shadow else f"allows it{later}"
    wait = decision.retry_after_ns
    when = "for good: it costs more than fits" if wait is None else f"for {duration(wait)}"
    why = ", as its counter is blocked" if decision.source == OVERRIDE else ""
    return f"would refuse it {when}{why}" if said.is_shadow else f"refuses it {when}{why}"


def _limit(part: Decision, cost: int) -> str:
    words = limit_in_words(part.limit)
    if part.allowed:
        left = f"{part.remaining} left after it" if cost else f"{part.remaining} left"
    else:
        left = f"{part.remaining} left"
    return f"{part.limit} ({words}): {left}"


def _unmatched(members: list[Member], *, shows_all: bool) -> Iterator[str]:
    yield bold("these do not match:")
    near = sorted(members, key=lambda member: not member.is_near)
    shown = members if shows_all or len(members) <= _MOST_LISTED else near[:_MOST_LISTED]
    width = max(len(member.rule.id) for member in shown)
    for member in shown:
        yield f"  {member.rule.id.ljust(width)}  {visible(member.reason)}"
    if len(shown) < len(members):
        yield f"  and {len(members) - len(shown)} more: --all lists them"


def _outcome(explanation: Explanation) -> Iterator[str]:
    has_turns = any(member.turn is not None for member in explanation.members)
    yield bold(_sentence(explanation.verdict, has_turns=has_turns))
    response = explanation.response
    if response.status is None and not response.headers:
        yield (
            "Apps add Headgate-Queue to the response: how their gates stand then."
            if has_turns
            else "Nothing is added to the response."
        )
        return
    yield "These are added to the response:" if response.status is None else "This is sent:"
    yield ""
    yield from (f"  {line}".rstrip() for line in _lines(response))


def _sentence(verdict: Verdict, *, has_turns: bool) -> str:
    refusing = verdict.denied_by
    if refusing is not None:
        wait = verdict.retry_after_ns
        when = "waiting does not help" if wait is None else f"it would pass in {duration(wait)}"
        return f"Refused by {refusing.rule.id}; {when}."
    if verdict.is_replay:
        return "Allowed: a request with this idempotency key was counted before."
    later = f" after a wait of {duration(verdict.delay_ns)}" if verdict.delay_ns else ""
    if has_turns:
        later += " and then, in apps, in its turn" if later else ", in apps in its turn"
    why = f"{later}." if verdict.enforced or has_turns else ": no rule that decides applies to it."
    shadows = ", ".join(one.rule.id for one in verdict.would_deny)
    return f"Allowed{why}" + (
        f" Out of shadow, it would be refused by {shadows}." if shadows else ""
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
