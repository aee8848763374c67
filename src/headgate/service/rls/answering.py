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
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headgate.responses import Answer, Told, headers_for, refusal
from headgate.responses.rounding import seconds_up
from headgate.responses.verdict import TOO_MANY_REQUESTS
from headgate.rules.envoy import UNIT_SECONDS
from headgate.rules.envoy.gateway import GATEWAY_DOMAIN
from headgate.service.rls import wire
from headgate.service.rls.asking import has_passed, is_passing
from headgate.service.rls.gateway import refused_field
from headgate.service.rls.messages import UNITS
from headgate.service.rls.metadata import metadata_of
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.decisions import Decision
    from headgate.limits import Limit
    from headgate.rules.envoy.model import Unit
    from headgate.service.core import Core
    from headgate.service.rls.asked import Asked, Line, Part
    from headgate.service.rls.options import RlsOptions
    from headgate.service.rls.steps import Said

MOST_TOLD: Final = 16
"""How many limits headers tell of: of a call with a thousand descriptors they would be too long."""

_OF_BODY: Final = frozenset({"Content-Type", "Cache-Control"})
"""The headers that tell of the body, not of limits."""

_UNIT_NUMBERS: Final = {
    seconds * SECOND: UNITS[unit.upper()] for unit, seconds in UNIT_SECONDS.items()
}
_UNLIMITED: Final = wire.status(b"", wire.MOST, None, passes=True)
_PASSED: Final = wire.status(b"", 0, None, passes=True)


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
        written = [wire.overall(passes=passes)]
        start = 0
        for line in asked.lines:
            end = start + len(line.parts)
            written.append(self._status(line, said[start:end]))
            start = end
        if not passes:
            written += self._refusal(asked.call.domain, _told(parts, said))
        elif self._options.headers and (told := _told(parts, said)):
            written += [wire.header(*line) for line in self._headers(told)]
        if self._options.metadata:
            written.append(wire.metadata(metadata_of(asked.call, _passed(asked, said))))
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
        written = [*[wire.header(*line) for line in lines], wire.body(made.body)]
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
            return wire.status(b"", 0, None, passes=passes)
        if decision is None:
            return self._closed(part, passes=passes)
        return wire.status(
            limit_field(part.name, decision.limit),
            decision.remaining,
            seconds_up(_wait_ns(decision)),
            passes=passes,
        )

    def _closed(self, part: Part, *, passes: bool) -> bytes:
        """The status of a limit of 0, or of one that was not asked."""
        if part.closed is None:
            return wire.status(b"", 0, None, passes=passes)
        limit = wire.current_limit(0, UNITS[part.closed.upper()], part.name)
        return wire.status(limit, 0, self._window_ends_in(part.closed), passes=passes)

    def _window_ends_in(self, unit: Unit) -> int:
        window = UNIT_SECONDS[unit] * SECOND
        return seconds_up(window - self._core.clock() % window)


@lru_cache(maxsize=4096)
def limit_field(name: str, limit: Limit) -> bytes:
    """What a status says of *limit*, in its unit if it has one of Envoy's."""
    return wire.current_limit(limit.quota, _UNIT_NUMBERS.get(limit.period_ns, 0), name)


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
