"""The encoder of replies: the decision on each part of a call as a `RateLimitResponse`.

A status has the figures of the tightest limit of its descriptor. Its duration is the wait of a
denial, and the time until all units are back otherwise: whole seconds, rounded up, since Envoy
drops fractions. A rule whose headers are hidden has no figures here either, because Envoy writes
headers from them.

A denial has the body that it has over HTTP. Its status is Envoy's, which has one for all denials.
Headgate's own gateway receives the reason as metadata, by which it sets the status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice, starmap
from typing import TYPE_CHECKING, Final, NamedTuple

from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct

from headgate.chance import chance
from headgate.engine.calls import is_allowed
from headgate.policy.envoy_config.attributes import GATEWAY_DOMAIN
from headgate.policy.envoy_config.config import UNIT_SECONDS
from headgate.responses import (
    Answer,
    RuleAnswer,
    allowed_lines,
    headers_for,
    limit_template,
    response_for,
)
from headgate.responses.answer import TOO_MANY_REQUESTS, WITHOUT_FIGURES
from headgate.service.rls import messages
from headgate.service.rls.descriptors import MAX_SHOWN
from headgate.service.rls.messages import UNITS
from headgate.service.rls.rule_lines import DENIAL_FIELDS, OUTAGE_FIELD
from headgate.units import SECOND, seconds_up

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from headgate.decision import Decision
    from headgate.engine.calls import Part
    from headgate.limits import Limit
    from headgate.responses.headers import LimitTemplate
    from headgate.service.core import Core
    from headgate.service.rls.descriptors import Line, PlannedCall
    from headgate.service.rls.requests import Call, Descriptor, RlsOptions


# Dynamic metadata: the call, and the metadata of the configured limits that allowed it.


def metadata_of(call: Call, passed: Iterable[Line]) -> bytes:
    """The `google.protobuf.Struct` for *call*, of which no limit denied the lines in *passed*.

    The first value of a name counts; mappings are merged.
    """
    content: dict[str, object] = {
        "domain": call.domain,
        "descriptors": [_described(one) for one in call.descriptors],
    }
    if call.hits is not None:
        content["hitsAddend"] = call.hits
    merged: dict[str, object] = {}
    for line in passed:
        _merge(merged, line.metadata)
    if merged:
        content["metadata"] = merged
    written: bytes = json_format.ParseDict(_plain(content), Struct()).SerializeToString()
    return written


def _described(one: Descriptor) -> dict[str, object]:
    described: dict[str, object] = {"entries": [f"{key}={value}" for key, value in one.entries]}
    if one.limit is not None:
        described["limit"] = f"requests_per_unit:{one.limit.requests} unit:{one.limit.unit.upper()}"
    if one.hits is not None:
        described["hitsAddend"] = one.hits
    return described


def _merge(into: dict[str, object], other: Mapping[str, object]) -> None:
    for name, value in other.items():
        known = into.get(name)
        if name not in into:
            into[name] = _plain(value)
        elif isinstance(known, dict) and isinstance(value, Mapping):
            _merge(known, value)


def _plain(value: object) -> Any:
    """A copy of *value* in the types of JSON."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    # A client may send text that is no UTF-8, which a Struct cannot hold.
    return str(value).encode("utf-8", "replace").decode()


MAX_FIELDS: Final = 4096
"""Encoded limits that are kept."""

_UNIT_NUMBERS: Final = {
    seconds * SECOND: UNITS[unit.upper()] for unit, seconds in UNIT_SECONDS.items()
}
Decisions = Sequence["Decision"]
"""The decision on each part of a call."""

Shown = tuple["Part", "Decision"]

_UNLIMITED: Final = messages.status(b"", messages.MOST, None, passes=True)
_ALLOWED: Final = messages.status(b"", 0, None, passes=True)


_LESS_THAN_A_SECOND: Final = SECOND - 1
_header: Final = messages.header_line


class _Fields(NamedTuple):
    """The constant fields of replies that show a limit, and the template of its headers."""

    limit: bytes
    template: LimitTemplate
    total: bytes
    policy: bytes


class ReplyEncoder:
    """Encodes replies with the parts that *options* ask for."""

    def __init__(self, core: Core, options: RlsOptions) -> None:
        self._core = core
        self._options = options
        self._for_gateway = replace(core.answers, pressure=False)  # no request is delayed
        self._for_others = replace(
            self._for_gateway, outage_status=TOO_MANY_REQUESTS, shed_status=TOO_MANY_REQUESTS
        )
        """For an Envoy that has one status for all denials."""
        self._can_be_quick = not options.metadata and (
            core.answers.has_usual_families or not options.headers
        )
        # By the identity of limits, which templates keep: hashing one takes longer than a hit.
        self._fields: dict[tuple[str, str, int], _Fields] = {}

    def reply(self, planned: PlannedCall, decisions: Decisions) -> bytes:
        """The reply to a call, by the decision on each of its parts."""
        parts, options = planned.plan.parts, self._options
        if (
            planned.shown
            and self._can_be_quick
            and (reply := self._quick_reply(planned.shown, decisions))
        ):
            return reply
        allowed = is_allowed(parts, decisions)
        fields = [messages.overall(passes=allowed)]
        fields += [self._status(*one) for one in _by_line(planned, decisions)]
        if not allowed:
            fields += self._denial(planned, _shown(parts, decisions))
        elif options.headers and (shown := _shown(parts, decisions)):
            fields += self._headers(planned, shown)
        if options.metadata:
            passed = [line for line, own in _by_line(planned, decisions) if _passes(line, own)]
            fields.append(messages.metadata(metadata_of(planned.call, passed)))
        return b"".join(fields)

    def _quick_reply(self, shown: Sequence[tuple[int, Part]], decisions: Decisions) -> bytes | None:
        """The reply if all parts in *shown* allow; None if one denies or has no figures.

        It takes half of the time of the general encoding, which a property test compares it with.
        """
        place, part = shown[0]
        if len(shown) > 1:
            place, part = min(shown, key=lambda one: decisions[one[0]].remaining)
        if not decisions[place].allowed:
            return None
        decision, now_ns = decisions[place], self._core.clock()
        fields = self._fields_of(part, decision.limit)
        left, reset_ns = decision.remaining, decision.reset_after_ns
        reset_s = (reset_ns + _LESS_THAN_A_SECOND) // SECOND
        reply = _allowed_status(fields.limit, left, reset_s)
        if len(shown) == 1 and not decision.parts:
            if fields.template.queue or decision.source in WITHOUT_FIGURES:
                return None
            if not self._options.headers:
                return reply
            _, remaining, reset, _, item = fields.template.lines(decision, now_ns)
            reply += fields.total + _header(*remaining) + _header(*reset)
            return reply + fields.policy + _header(*item)
        lines = allowed_lines([(one.title, decisions[n]) for n, one in shown], now_ns)
        if lines is None or not self._options.headers:
            return None if lines is None else reply
        return b"".join((reply, *starmap(_header, lines)))

    def _headers(self, planned: PlannedCall, shown: Sequence[Shown]) -> list[bytes]:
        rules = _rule_answers(shown)
        answer = Answer(allowed=True, rules=rules, protocol=planned.protocol)
        lines = headers_for(answer, now_ns=self._core.clock(), options=self._for_gateway)
        return [messages.header(*line) for line in lines]

    def _denial(self, planned: PlannedCall, shown: Sequence[Shown]) -> list[bytes]:
        """The headers and the body of a denial, as over HTTP; without headers there is no body
        either. (Envoy does not pass `Accept` on.)"""
        jitter = chance()
        rules, domain = _rule_answers(shown), planned.call.domain
        answer = Answer(allowed=False, rules=rules, jitter=jitter, protocol=planned.protocol)
        options = self._for_gateway if domain == GATEWAY_DOMAIN else self._for_others
        response = response_for(answer, now_ns=self._core.clock(), options=options)
        fields: list[bytes] = []
        if self._options.headers:
            fields += [messages.header(*line) for line in response.headers]
            fields.append(messages.body(response.body))
        if domain == GATEWAY_DOMAIN:
            fields.append(DENIAL_FIELDS.get(response.status, OUTAGE_FIELD))
        return fields

    def _status(self, line: Line, decisions: Decisions) -> bytes:
        if line.is_unlimited:
            return _UNLIMITED
        shown = [one for one in zip(line.parts, decisions, strict=True) if one[0].role != "hidden"]
        if not shown:
            return _ALLOWED
        part, decision = shown[0]
        passes = decision.allowed
        if len(shown) > 1:
            part, decision = max(shown, key=_tightness)
            passes = all(one.allowed for _, one in shown)
        passes = passes or part.role == "shadow"
        if part.planned.rule.headers != "on":
            return messages.status(b"", 0, None, passes=passes)
        if part.closed is not None:
            limit = messages.current_limit(0, UNITS[part.closed.upper()], part.name)
            window_ns = part.planned.limits[0].period_ns
            ends_in_ns = window_ns - self._core.clock() % window_ns
            return messages.status(limit, 0, seconds_up(ends_in_ns), passes=passes)
        wait_ns = decision.reset_after_ns
        if not decision.allowed:
            wait_ns = decision.retry_after_ns or wait_ns
        limit = self._fields_of(part, decision.limit).limit
        return messages.status(limit, decision.remaining, seconds_up(wait_ns), passes=passes)

    def _fields_of(self, part: Part, limit: Limit) -> _Fields:
        """The fields for a *limit* of *part*, made once."""
        found = self._fields.get((part.name, part.title, id(limit)))
        if found is None:
            if len(self._fields) >= MAX_FIELDS:
                self._fields.clear()
            unit = _UNIT_NUMBERS.get(limit.period_ns, 0)
            field = messages.current_limit(limit.quota, unit, part.name)
            template = limit_template(part.title, limit)
            total, policy = _header(*template.total_line), _header(*template.policy_line)
            found = _Fields(field, template, total, policy)
            self._fields[part.name, part.title, id(limit)] = found
        return found


@lru_cache(maxsize=4096)
def _allowed_status(limit: bytes, remaining: int, seconds: int) -> bytes:
    """The code of a reply that allows, and its only status."""
    status = messages.status(limit, remaining, seconds, passes=True)
    return messages.overall(passes=True) + status


def _by_line(planned: PlannedCall, decisions: Decisions) -> Iterator[tuple[Line, Decisions]]:
    """The lines of a call, each with the decisions on its parts."""
    left = iter(decisions)
    for line in planned.lines:
        yield line, list(islice(left, len(line.parts)))


def _passes(line: Line, decisions: Decisions) -> bool:
    """True if no limit denied *line*."""
    pairs = zip(line.parts, decisions, strict=True)
    return all(part.role in ("shadow", "hidden") or one.allowed for part, one in pairs)


def _shown(parts: Sequence[Part], decisions: Decisions) -> Sequence[Shown]:
    """The decisions that headers show: of each rule the tightest, no shadow rules."""
    tightest: dict[str, Shown] = {}
    for part, decision in zip(parts, decisions, strict=True):
        if part.closed is not None or part.role in ("shadow", "hidden"):
            continue
        other = tightest.get(part.title)
        if other is None or _tightness((part, decision)) > _tightness(other):
            tightest[part.title] = (part, decision)
    shown = list(tightest.values())
    if len(shown) > MAX_SHOWN:
        shown = sorted(shown, key=_tightness, reverse=True)[:MAX_SHOWN]
    return shown


def _rule_answers(shown: Iterable[Shown]) -> tuple[RuleAnswer, ...]:
    return tuple(
        [
            RuleAnswer(
                part.title,
                decision,
                part.planned.rule.headers,
                part.planned.sheds,
                part.planned.rule.counts,
            )
            for part, decision in shown
        ]
    )


def _tightness(shown: Shown) -> tuple[bool, bool, int]:
    """The order of parts: denials by their wait, those without end last; before them, allowed ones
    by what is left."""
    part, decision = shown
    if decision.allowed and part.closed is None:
        return False, False, -decision.remaining
    wait = decision.retry_after_ns
    return True, wait is None, wait or 0
