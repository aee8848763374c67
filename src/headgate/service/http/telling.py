"""What is said of a verdict that admits: headers and JSON, made quickly.

What is the same for all requests under a limit is made once. The headers are those that
`responses.headers_for` would make, the JSON that of `portrait`, and tests hold them together.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headgate.algorithms import Outcome
from headgate.enforcement.asgi.sending import encoded
from headgate.engine import answer_of
from headgate.limits import Concurrency, LeakyQueue
from headgate.responses import headers_for
from headgate.responses.answer import WITHOUT_FIGURES, Part
from headgate.responses.ratelimit_draft11 import pace_of, policy_field, quoted
from headgate.responses.rounding import LARGEST_INTEGER
from headgate.service.http.portrait import limit_text
from headgate.stores.port import concluded
from headgate.units import MILLISECOND, SECOND, seconds_at_least

if TYPE_CHECKING:
    from headgate.clock import Clock
    from headgate.decisions import Decision
    from headgate.engine import Verdict
    from headgate.limits import Limit
    from headgate.responses import ResponseOptions
    from headgate.rules.model import Rule
    from headgate.service.http.replies import Headers

REMEMBERED: Final = 4096
"""For how many limits the unchanging part is kept."""

UP: Final = SECOND - 1
_NOTHING_YET: Final = Outcome(allowed=True, remaining=0, retry_after_ns=0, reset_after_ns=0)


@dataclass(frozen=True, slots=True)
class Saying:
    """What never changes in what is said of *limit*, the one at a place of *rule*."""

    rule: Rule
    limit: Limit
    total: tuple[bytes, bytes]
    policy: bytes
    name: bytes
    id: str
    text: str
    quota: int
    pace: tuple[int, int] | None
    has_slots: bool
    is_queue: bool

    @classmethod
    def of(cls, rule: Rule, place: int, limit: Limit) -> Saying:
        name = rule.id if place == 0 else f"{rule.id}/{place + 1}"
        known = {"id": rule.id, "mode": rule.mode, "limit": limit_text(limit), "quota": limit.quota}
        has_slots = isinstance(limit, Concurrency)
        return cls(
            rule,
            limit,
            (b"x-ratelimit-limit", b"%d" % limit.quota),
            policy_field([Part(name, concluded("", limit, _NOTHING_YET))]).encode(),
            quoted(name).encode(),
            json.dumps(rule.id),
            json.dumps(known)[:-1],
            limit.quota,
            pace_of(limit),
            has_slots,
            isinstance(limit, LeakyQueue),
        )

    def left(self, remaining: int, reset_ns: int) -> bytes:
        """The item in `RateLimit` for a limit that admitted."""
        if self.has_slots or not reset_ns:
            return b"%b;r=%d" % (self.name, remaining)
        if self.pace is not None and (others := self.quota - remaining - 1) > 0:
            reset_ns -= others * self.pace[0] // self.pace[1]
        # What is held counts as used but is not worked off: then there may be less to wait for.
        seconds = max(1, (reset_ns + UP) // SECOND)
        return b"%b;r=%d;t=%d" % (self.name, remaining, seconds)


class Teller:
    """Says what came of requests, as *options* have it. *clock* is for what is told as a time."""

    def __init__(self, options: ResponseOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._is_plain = (
            options.x_ratelimit and options.ratelimit and not options.draft03 and not options.bucket
        )
        self._sayings: dict[tuple[int, int, int], Saying] = {}

    def lines(self, verdict: Verdict) -> Headers:
        """The headers of the response to a request that was admitted."""
        told: list[tuple[Decision, Saying]] = []
        for one in verdict.rules:
            rule = one.rule
            if rule.mode == "enforce" and rule.headers == "on":
                for place, part in enumerate(one.decision.limits):
                    if part.source in WITHOUT_FIGURES:
                        return self.slow_lines(verdict)
                    saying = self.saying(rule, place, part.limit)
                    if saying.is_queue:
                        return self.slow_lines(verdict)
                    told.append((part, saying))
        if not told or not self._is_plain:
            return self.slow_lines(verdict) if told else []
        return self._lines(told)

    def slow_lines(self, verdict: Verdict) -> Headers:
        """The same for whatever is out of the ordinary."""
        answer = answer_of(verdict)
        return encoded(headers_for(answer, now_ns=self._clock(), options=self._options))

    def saying(self, rule: Rule, place: int, limit: Limit) -> Saying:
        """What never changes in what is said of *limit*."""
        # By identity: the hash of a limit takes longer than all the rest. What is kept here lives,
        # so that nothing else can be at its place in memory.
        known = id(rule), place, id(limit)
        found = self._sayings.get(known)
        if found is None:
            if len(self._sayings) >= REMEMBERED:
                self._sayings.clear()
            found = self._sayings[known] = Saying.of(rule, place, limit)
        return found

    def text(self, verdict: Verdict) -> str:
        """The JSON of a verdict that admits; as `portrait` has it."""
        tightest: Saying | None = None
        least = reset_ns = delay_ns = 0
        source = "store"
        texts = []
        for one in verdict.rules:
            decision = one.decision
            remaining, back_ns, by = decision.remaining, decision.reset_after_ns, decision.source
            saying = self.saying(one.rule, 0, decision.limit)
            if one.rule.mode == "enforce":
                if tightest is None or remaining < least:
                    tightest, least = saying, remaining
                reset_ns = max(reset_ns, back_ns)
                delay_ns = max(delay_ns, decision.delay_ns)
                source = _source(source, by)
            wait = decision.retry_after_ns
            texts.append(
                f'{saying.text}, "cost": {one.cost}, '
                f'"allowed": {"true" if decision else "false"}, "remaining": {remaining}, '
                f'"retry_after_ms": {"null" if wait is None else -(-wait // MILLISECOND)}, '
                f'"reset_after": {seconds_at_least(back_ns)!r}, "source": "{by}"}}'
            )
        rules = ", ".join(texts)
        if tightest is None:
            return (
                '{"allowed": true, "limit": null, "quota": null, "remaining": null, '
                '"retry_after": 0, "retry_after_ms": 0, "reset_after": 0.0, "source": null, '
                f'"revision": {verdict.revision}, "rules": [{rules}]}}'
            )
        delay = f'"delay_ms": {-(-delay_ns // MILLISECOND)}, ' if delay_ns else ""
        return (
            f'{{"allowed": true, "limit": {tightest.id}, "quota": {tightest.quota}, '
            f'"remaining": {least}, "retry_after": 0, "retry_after_ms": 0, {delay}'
            f'"reset_after": {seconds_at_least(reset_ns)!r}, "source": "{source}", '
            f'"revision": {verdict.revision}, "rules": [{rules}]}}'
        )

    def _lines(self, told: list[tuple[Decision, Saying]]) -> Headers:
        least = LARGEST_INTEGER + 1
        until_ns, total = 0, told[0][1].total
        items = []
        for part, saying in told:
            remaining, reset_ns = part.remaining, part.reset_after_ns
            items.append(saying.left(remaining, reset_ns))
            if remaining < least:
                least, until_ns, total = remaining, reset_ns, saying.total
        reset_at = (self._clock() + until_ns + UP) // SECOND
        return [
            total,
            (b"x-ratelimit-remaining", b"%d" % least),
            (b"x-ratelimit-reset", b"%d" % reset_at),
            (b"ratelimit-policy", b", ".join([saying.policy for _, saying in told])),
            (b"ratelimit", b", ".join(items)),
        ]


def _source(known: str, other: str) -> str:
    """As `Verdict.source` of one that admits: what stood in for the store, the first by name."""
    if other == "store":
        return known
    return other if known == "store" or other < known else known
