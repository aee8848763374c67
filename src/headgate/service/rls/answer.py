"""What was said, as the answer to a call.

A status has the figures of the tightest limit of its descriptor. Its duration is what the caller
has to wait for when it is denied, and the time until all is back otherwise: whole seconds, rounded
up, since Envoy drops what is behind the point. Rules whose headers are not to be shown have no
figures here either, for Envoy makes headers of them.

A refusal has the body that it has over HTTP. Its status is Envoy's: one for all refusals, so a
limit that was exceeded, want of capacity and a store that was gone look alike there, unless Envoy
is told to change it by the metadata that our own gateway is sent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from google.protobuf import json_format

from headgate.engine.calls import is_allowed
from headgate.policy.envoy_config import UNIT_SECONDS
from headgate.policy.envoy_config.attributes import GATEWAY_DOMAIN
from headgate.responses import Answer, Told, headers_for, refusal
from headgate.responses.answer import TOO_MANY_REQUESTS, WITHOUT_FIGURES
from headgate.responses.headers import limit_template, lines_of
from headgate.service.rls import messages
from headgate.service.rls.messages import UNITS, Struct
from headgate.service.rls.ruled import refused_field
from headgate.units import SECOND, seconds_up

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from headgate.clock import Clock
    from headgate.decision import Decision
    from headgate.engine.calls import Part
    from headgate.limits import Limit
    from headgate.service.core import Core
    from headgate.service.rls.descriptors import Asked, Line
    from headgate.service.rls.reading import Call, Descriptor, RlsOptions


# Dynamic metadata: what was asked, and what the configuration says of the limits that passed.


def metadata_of(call: Call, passed: Iterable[Line]) -> bytes:
    """The `google.protobuf.Struct` for *call*, of which the lines in *passed* were not denied.

    Of what several say under one name the first counts; mappings are merged.
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
    """*value* as JSON has it, in a copy."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    # What a client sent need not be UTF-8, which is all that there is room for here.
    return str(value).encode("utf-8", "replace").decode()


MOST_TOLD: Final = 16
"""How many limits headers tell of: of a call with a thousand descriptors they would be too long."""

_OF_BODY: Final = frozenset({"Content-Type", "Cache-Control"})
"""The headers that tell of the body, not of limits."""

_UNIT_NUMBERS: Final = {
    seconds * SECOND: UNITS[unit.upper()] for unit, seconds in UNIT_SECONDS.items()
}
Said = Sequence["Decision"]
"""The decision on each part of a call."""

_UNLIMITED: Final = messages.status(b"", messages.MOST, None, passes=True)
_PASSED: Final = messages.status(b"", 0, None, passes=True)


class Answering:
    """Writes answers, with what the options ask for."""

    def __init__(self, core: Core, options: RlsOptions) -> None:
        self._core = core
        self._options = options
        self._here = replace(core.answers, pressure=False)  # nothing is delayed
        self._elsewhere = replace(
            self._here, outage_status=TOO_MANY_REQUESTS, shed_status=TOO_MANY_REQUESTS
        )
        """What to say where nobody changes the status, which Envoy has one of for all refusals."""
        # By the identity of limits, which are kept with it: to hash one takes longer than a hit.
        self._prepared: dict[tuple[object, ...], tuple[list[Part], Allowed]] = {}

    def clear(self) -> None:
        """Forget the prepared answers, since the limits have changed."""
        self._prepared.clear()

    def prepared(self, asked: Asked) -> Allowed | None:
        """The prepared answer to a call that is allowed; None if there is more to say."""
        options, parts = self._options, asked.plan.parts
        if options.metadata or (options.headers and not self._core.answers.has_usual_families):
            return None
        deciding = [part for part in parts if part.role == "decides"]
        if len(asked.lines) != 1 or not _are_all_shown(parts, deciding):
            return None
        limits = tuple([(one.name, one.title, *map(id, one.planned.limits)) for one in deciding])
        found = self._prepared.get(limits)
        if found is None:
            if len(self._prepared) >= MOST_PREPARED:
                self._prepared.clear()
            made = allowed_answer(deciding, self._core.clock, with_headers=options.headers)
            found = self._prepared[limits] = deciding, made
        return found[1]

    def answer(self, asked: Asked, said: Said, prepared: Allowed | None = None) -> bytes:
        """The answer to a call, by the decision on each of its parts."""
        parts = asked.plan.parts
        if prepared is not None and (left := _left(parts, said)) is not None:
            return prepared(left)
        passes = is_allowed(parts, said)
        written = [messages.overall(passes=passes)]
        start = 0
        for line in asked.lines:
            end = start + len(line.parts)
            written.append(self._status(line, said[start:end]))
            start = end
        if not passes:
            written += self._refusal(asked.call.domain, _told(parts, said))
        elif self._options.headers and (told := _told(parts, said)):
            written += [messages.header(*line) for line in self._headers(told)]
        if self._options.metadata:
            written.append(messages.metadata(metadata_of(asked.call, _passed(asked, said))))
        return b"".join(written)

    def _headers(self, told: tuple[Told, ...]) -> list[tuple[str, str]]:
        answer = Answer(allowed=True, told=told)
        return headers_for(answer, now_ns=self._core.clock(), options=self._here)

    def _refusal(self, domain: str, told: tuple[Told, ...]) -> list[bytes]:
        """What a client that is refused gets, as over HTTP; but what kind of body it would rather
        have, Envoy does not tell."""
        jitter = random.random()  # noqa: S311 (it only spreads retries)
        answer = Answer(allowed=False, told=told, jitter=jitter)
        options = self._here if domain == GATEWAY_DOMAIN else self._elsewhere
        made = refusal(answer, now_ns=self._core.clock(), options=options)
        lines = [line for line in made.headers if self._options.headers or line[0] in _OF_BODY]
        written = [*[messages.header(*line) for line in lines], messages.body(made.body)]
        if domain == GATEWAY_DOMAIN:
            written.append(refused_field(is_outage=made.status != TOO_MANY_REQUESTS))
        return written

    def _status(self, line: Line, said: Said) -> bytes:
        if line.is_unlimited:
            return _UNLIMITED
        shown = [one for one in zip(line.parts, said, strict=True) if one[0].role != "hidden"]
        if not shown:
            return _PASSED
        part, decision = shown[0] if len(shown) == 1 else max(shown, key=_tightness)
        passes = part.role == "shadow" or all(one.allowed for _, one in shown)
        if part.planned.rule.headers != "on":
            return messages.status(b"", 0, None, passes=passes)
        if part.closed is not None:
            limit = messages.current_limit(0, UNITS[part.closed.upper()], part.name)
            return messages.status(limit, 0, self._window_ends_in(part), passes=passes)
        return messages.status(
            limit_field(part.name, decision.limit),
            decision.remaining,
            seconds_up(_wait_ns(decision)),
            passes=passes,
        )

    def _window_ends_in(self, part: Part) -> int:
        window = part.planned.limits[0].period_ns
        return seconds_up(window - self._core.clock() % window)


@lru_cache(maxsize=4096)
def limit_field(name: str, limit: Limit) -> bytes:
    """What a status says of *limit*, in its unit if it has one of Envoy's."""
    return messages.current_limit(limit.quota, _UNIT_NUMBERS.get(limit.period_ns, 0), name)


def _wait_ns(decision: Decision) -> int:
    if decision.allowed:
        return decision.reset_after_ns
    return decision.retry_after_ns or decision.reset_after_ns


def _passed(asked: Asked, said: Said) -> list[Line]:
    """The lines that nothing denied."""
    passed, start = [], 0
    for line in asked.lines:
        end = start + len(line.parts)
        if all(map(_has_let_pass, line.parts, said[start:end])):
            passed.append(line)
        start = end
    return passed


def _has_let_pass(part: Part, decision: Decision) -> bool:
    return part.role in ("shadow", "hidden") or decision.allowed


def _told(parts: Sequence[Part], said: Said) -> tuple[Told, ...]:
    """What headers are to tell: of each rule once, that which binds most."""
    tightest: dict[str, tuple[Part, Decision]] = {}
    for part, decision in zip(parts, said, strict=True):
        if part.closed is not None or part.role in ("shadow", "hidden"):
            continue
        other = tightest.get(part.title)
        if other is None or _tightness((part, decision)) > _tightness(other):
            tightest[part.title] = (part, decision)
    spoken = list(tightest.values())
    if len(spoken) > MOST_TOLD:
        spoken = sorted(spoken, key=_tightness, reverse=True)[:MOST_TOLD]
    return tuple(
        [
            Told(part.title, decision, part.planned.rule.headers, part.planned.sheds)
            for part, decision in spoken
        ]
    )


def _tightness(spoken: tuple[Part, Decision]) -> tuple[bool, bool, int]:
    """How much a part binds: refusals by their wait, those without end most; else by what is
    left."""
    part, decision = spoken
    if decision.allowed and part.closed is None:
        return False, False, -decision.remaining
    wait = decision.retry_after_ns
    return True, wait is None, wait or 0


# The answer to a call that is allowed, as most are. What is the same for all such calls is made
# beforehand; a property test compares it with the answer made from the decisions.


Left = tuple[int, int]
"""What is left of a limit, and the nanoseconds until all of it is back."""

Allowed = Callable[[Sequence[Left]], bytes]
"""From what is left of the limits of a call to its answer; in the order of parts and limits."""

MOST_PREPARED: Final = 1024
"""Prepared answers that are kept: limits may depend on the caller."""

_LESS_THAN_A_SECOND: Final = SECOND - 1


def allowed_answer(parts: Sequence[Part], clock: Clock, *, with_headers: bool) -> Allowed:
    """Prepare the answer to a call of one descriptor that has the limits of all *parts* to pass.

    With headers, they are those of the two usual families.
    """
    owners, fields, templates = [], [], []
    for owner, part in enumerate(parts):
        for place, limit in enumerate(part.planned.limits, 1):
            title = part.title if place == 1 else f"{part.title}/{place}"
            owners.append(owner)
            fields.append(limit_field(part.name, limit))
            templates.append(limit_template(title, limit))
    places, header = range(len(owners)), messages.header_line
    totals = [header(*one.total_line) for one in templates]
    policy = header(b"ratelimit-policy", b", ".join([one.policy_line[1] for one in templates]))

    def answer(left: Sequence[Left]) -> bytes:
        place = min(places, key=lambda n: left[n][0])  # the first, of equal ones
        owner, remaining = owners[place], left[place][0]
        whole_ns = max([left[n][1] for n in places if owners[n] == owner])
        status = _status(fields[place], remaining, (whole_ns + _LESS_THAN_A_SECOND) // SECOND)
        if not with_headers:
            return status
        limits = [(templates[n], *left[n]) for n in places]
        _, least, reset, _, items = lines_of(limits, clock())
        return status + totals[place] + header(*least) + header(*reset) + policy + header(*items)

    def answer_of_one(left: Sequence[Left]) -> bytes:
        ((remaining, reset_ns),) = left
        status = _status(fields[0], remaining, (reset_ns + _LESS_THAN_A_SECOND) // SECOND)
        if not with_headers:
            return status
        _, least, reset, _, item = templates[0].lines(remaining, reset_ns, clock())
        return status + totals[0] + header(*least) + header(*reset) + policy + header(*item)

    return answer_of_one if len(places) == 1 else answer


@lru_cache(maxsize=4096)
def _status(field: bytes, remaining: int, seconds: int) -> bytes:
    """The code of the whole answer, and the one status of it."""
    return messages.overall(passes=True) + messages.status(field, remaining, seconds, passes=True)


def _are_all_shown(parts: Sequence[Part], deciding: Sequence[Part]) -> bool:
    """True if all of *deciding*, and no others, are shown, each by a title of its own."""
    for part in parts:
        if part.verb != "take" or part.role not in ("decides", "hidden") or part.closed is not None:
            return False
    for part in deciding:
        if part.planned.rule.headers != "on":
            return False
    titles = {part.title for part in deciding}
    return 0 < len(deciding) <= MOST_TOLD and len(titles) == len(deciding)


def _left(parts: Sequence[Part], said: Said) -> Sequence[Left] | None:
    """What is left of each limit that decides; None if one denies, or has no figures."""
    if len(said) == 1 and not said[0].parts:
        one = said[0]
        is_shown = one.allowed and one.source not in WITHOUT_FIGURES
        return ((one.remaining, one.reset_after_ns),) if is_shown else None
    left: list[Left] = []
    for n, decision in enumerate(said):
        if parts[n].role == "decides":
            for one in decision.limits:
                if not one.allowed or one.source in WITHOUT_FIGURES:
                    return None
                left.append((one.remaining, one.reset_after_ns))
    return left
