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
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headgate.policy.envoy_config import UNIT_SECONDS
from headgate.policy.envoy_config.attributes import GATEWAY_DOMAIN
from headgate.responses import Answer, Told, headers_for, refusal
from headgate.responses.answer import TOO_MANY_REQUESTS
from headgate.service.rls import messages
from headgate.service.rls.asking import has_passed, is_passing
from headgate.service.rls.messages import UNITS, Struct
from headgate.service.rls.ruled import refused_field
from headgate.units import SECOND, seconds_up

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from headgate.decision import Decision
    from headgate.limits import Limit
    from headgate.policy.envoy_config.model import Unit
    from headgate.service.core import Core
    from headgate.service.rls.asking import Said
    from headgate.service.rls.descriptors import Asked, Line, Part
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
    struct = Struct()
    _fill(struct, content)
    written: bytes = struct.SerializeToString()
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
            into[name] = _copied(value)
        elif isinstance(known, dict) and isinstance(value, Mapping):
            _merge(known, value)


def _copied(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _copied(each) for name, each in value.items()}
    return value


def _fill(struct: Any, content: Mapping[str, object]) -> None:
    for name, value in content.items():
        _set(struct.fields[name], value)


def _set(target: Any, value: object) -> None:
    if value is None:
        target.null_value = 0
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int | float):
        target.number_value = value
    elif isinstance(value, Mapping):
        target.struct_value.SetInParent()
        _fill(target.struct_value, value)
    elif isinstance(value, list | tuple):
        target.list_value.SetInParent()
        for each in value:
            _set(target.list_value.values.add(), each)
    else:
        # What a client sent need not be UTF-8, which is all that there is room for here.
        target.string_value = str(value).encode("utf-8", "replace").decode()


MOST_TOLD: Final = 16
"""How many limits headers tell of: of a call with a thousand descriptors they would be too long."""

_OF_BODY: Final = frozenset({"Content-Type", "Cache-Control"})
"""The headers that tell of the body, not of limits."""

_UNIT_NUMBERS: Final = {
    seconds * SECOND: UNITS[unit.upper()] for unit, seconds in UNIT_SECONDS.items()
}
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

    def answer(self, asked: Asked, said: Said) -> bytes:
        """The answer to what was *asked*, of which *said* came."""
        parts = asked.parts
        passes = is_passing(parts, said)
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
        passes = part.role == "shadow" or all(has_passed(*one) for one in shown)
        if part.headers != "on":
            return messages.status(b"", 0, None, passes=passes)
        if decision is None:
            return self._closed(part, passes=passes)
        return messages.status(
            limit_field(part.name, decision.limit),
            decision.remaining,
            seconds_up(_wait_ns(decision)),
            passes=passes,
        )

    def _closed(self, part: Part, *, passes: bool) -> bytes:
        """The status of a limit of 0, or of one that was not asked."""
        if part.closed is None:
            return messages.status(b"", 0, None, passes=passes)
        limit = messages.current_limit(0, UNITS[part.closed.upper()], part.name)
        return messages.status(limit, 0, self._window_ends_in(part.closed), passes=passes)

    def _window_ends_in(self, unit: Unit) -> int:
        window = UNIT_SECONDS[unit] * SECOND
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


def _has_let_pass(part: Part, decision: Decision | None) -> bool:
    return part.role in ("shadow", "hidden") or has_passed(part, decision)


def _told(parts: Sequence[Part], said: Said) -> tuple[Told, ...]:
    """What headers are to tell: of each rule once, that which binds most."""
    tightest: dict[str, tuple[Part, Decision]] = {}
    for part, decision in zip(parts, said, strict=True):
        if decision is None or part.role in ("shadow", "hidden"):
            continue
        other = tightest.get(part.title)
        if other is None or _tightness((part, decision)) > _tightness(other):
            tightest[part.title] = (part, decision)
    spoken = list(tightest.values())
    if len(spoken) > MOST_TOLD:
        spoken = sorted(spoken, key=_tightness, reverse=True)[:MOST_TOLD]
    return tuple(
        [Told(part.title, decision, part.headers, part.sheds) for part, decision in spoken]
    )


def _tightness(spoken: tuple[Part, Decision | None]) -> tuple[bool, bool, int]:
    """How much a part binds: refusals by their wait, those without end most; else by what is
    left."""
    _, decision = spoken
    if decision is None:
        return True, True, 0
    if decision.allowed:
        return False, False, -decision.remaining
    wait = decision.retry_after_ns
    return True, wait is None, wait or 0
