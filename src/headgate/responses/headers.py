"""The encoder of rate-limit headers.

A `LimitTemplate` has the constant parts of the headers of one limit, and encodes the others.
`headers_for` encodes any answer as text, with any options. `allowed_lines` encodes the usual one,
an allowed request with the usual families of headers, as bytes in a fraction of the time; a
property test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from headgate.decision import OVERRIDE, binds_more
from headgate.limits import Concurrency, FixedWindow, LeakyQueue, SlidingWindowCounter
from headgate.llm.protocol import Figures, rate_limit_headers, retry_headers
from headgate.responses import pressure, ratelimit_draft11
from headgate.responses.answer import DEFAULT, GATE, WITHOUT_FIGURES, denial_of
from headgate.responses.bodies import denial_body, prefers_problem
from headgate.responses.pressure import load_of_queue, orca_line, pressure_lines
from headgate.units import LARGEST_INTEGER, SECOND, bounded, seconds_up

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headgate.decision import Decision
    from headgate.limits import Limit
    from headgate.llm.protocol import Counted
    from headgate.responses.answer import Answer, Denial, ResponseOptions

Lines = list[tuple[str, str]]
Pairs = list[tuple[bytes, bytes]]
"""Header lines as bytes, with names in lower case."""

NAMES: Final = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
"""Integers of the tightest limit. The reset is an epoch second, as with GitHub."""

DRAFT_03_NAMES: Final = ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset")
"""The same in draft-03 of the IETF, which has the reset in seconds from now."""

BUCKET: Final = "X-RateLimit-Bucket"
RETRY_AFTER: Final = "Retry-After"
REPLAYED: Final = "Idempotency-Replayed"
"""Marks the response to a request that repeats one that was charged before."""

LISTS: Final = tuple(
    name.lower() for name in (ratelimit_draft11.POLICY, ratelimit_draft11.LIMIT, pressure.QUEUE)
)
"""The fields that several servers on the way may add to."""

_SPELLED: Final = {
    name.lower().encode("ascii"): name
    for name in (
        *NAMES,
        ratelimit_draft11.POLICY,
        ratelimit_draft11.LIMIT,
        pressure.QUEUE,
        pressure.DELAY,
    )
}
MOST_TEMPLATES: Final = 4096
_UP: Final = SECOND - 1
_CLOSE_NS: Final = 5 * SECOND
"""The most that the clocks of a store and of this process differ, and that a response is late."""


class LimitTemplate:
    """The constant parts of what headers say about the *limit* of a policy called *name*."""

    def __init__(self, name: str, limit: Limit) -> None:
        named = ratelimit_draft11.quoted(name)
        self.limit = limit
        self.policy = ratelimit_draft11.policy_item(name, limit)
        self.total = str(limit.quota)
        self.queue = limit if isinstance(limit, LeakyQueue) else None
        self._has_slots = isinstance(limit, Concurrency)
        self._cells = _aligned_cells(limit)
        self._pace = ratelimit_draft11.pace_of(limit)
        self._quota = limit.quota
        self._named = f"{named};r="
        self._bare = named.replace("%", "%%").encode() + b";r=%d"
        self._item = self._bare + b";t=%d"
        self._reset = 0, (b"", b"")
        self.total_line = b"x-ratelimit-limit", self.total.encode()
        self.policy_line = b"ratelimit-policy", self.policy.encode()

    def item(self, decision: Decision, retry_after: int | None = None) -> str:
        """Return the item of `RateLimit`. *retry_after* is `Retry-After` in the same response."""
        returns_in = self.returns_in_ns(decision)
        left = bounded(decision.remaining)
        if returns_in is None:
            return f"{self._named}{left}"
        window = seconds_up(returns_in)
        if retry_after is not None and window > retry_after:
            return f"{self._named}{left}"
        return f"{self._named}{left};t={window}"

    def returns_in_ns(self, decision: Decision) -> int | None:
        """Return the nanoseconds until the next unit comes back, or a little more; None: unknown.

        Exact to a nanosecond for paced and fixed windows, and for a cost of 1 that was denied.
        """
        wait = decision.retry_after_ns
        if wait and decision.source == OVERRIDE:
            return wait
        returns_in = self._next_unit_ns(decision.remaining, decision.reset_after_ns)
        return min(wait, returns_in) if wait and returns_in else returns_in

    def reset_of(self, decision: Decision, now_ns: int) -> int:
        """Return the epoch second of the reset of *decision*."""
        if decision.source == OVERRIDE:  # the end of a block
            return seconds_up(now_ns + decision.reset_after_ns)
        return self.reset_s(decision.reset_after_ns, now_ns)

    def reset_s(self, reset_after_ns: int, now_ns: int) -> int:
        """Return the epoch second of a reset *reset_after_ns* after a decision, read at *now_ns*.

        *now_ns* is later than the decision, and need not be of the store's clock. A window that is
        aligned to the epoch ends at a boundary: a sum that is close to one means that one. (It is
        not close if a hold expires after the window, or a clock stepped back.)
        """
        reset_ns = now_ns + reset_after_ns
        if self._cells and reset_after_ns:
            window_ns, cells = self._cells
            nearest = (reset_ns * cells + window_ns // 2) // window_ns
            boundary_ns = -(-nearest * window_ns // cells)
            if abs(boundary_ns - reset_ns) <= _CLOSE_NS:
                reset_ns = boundary_ns
        seconds = (reset_ns + _UP) // SECOND
        return seconds if seconds <= LARGEST_INTEGER else LARGEST_INTEGER

    def reset_line(self, reset_ns: int, now_ns: int) -> tuple[bytes, bytes]:
        """Return `X-RateLimit-Reset` of a limit that allowed: one line for all in a second."""
        if self._cells is None:
            reset = (now_ns + reset_ns + _UP) // SECOND
        else:
            reset = self.reset_s(reset_ns, now_ns)
        second, line = self._reset
        if reset != second:
            line = b"x-ratelimit-reset", b"%d" % reset
            self._reset = reset, line
        return line

    def lines(self, decision: Decision, now_ns: int) -> Pairs:
        """Return the usual families of headers of a request that this limit alone allowed."""
        left, reset_ns = decision.remaining, decision.reset_after_ns
        return [
            self.total_line,
            (b"x-ratelimit-remaining", b"%d" % left),
            self.reset_line(reset_ns, now_ns),
            self.policy_line,
            (b"ratelimit", self.left(left, reset_ns)),
        ]

    def left(self, left: int, reset_ns: int) -> bytes:
        """Return the item of `RateLimit` of a limit that allowed."""
        back_ns = self._next_unit_ns(left, reset_ns)
        if back_ns is None:
            return self._bare % left
        return self._item % (left, (back_ns + _UP) // SECOND)

    def _next_unit_ns(self, left: int, reset_ns: int) -> int | None:
        if not reset_ns or self._has_slots:
            return None
        pace = self._pace
        if pace is not None and (others := self._quota - left - 1) > 0:
            reset_ns -= others * pace[0] // pace[1]
        # Held units count as used but do not come back with time: the difference may be negative.
        return reset_ns if reset_ns > 0 else 1


def _aligned_cells(limit: Limit) -> tuple[int, int] | None:
    """Return the length of a window that is aligned to the epoch, and its cells; else None."""
    if isinstance(limit, SlidingWindowCounter):
        return limit.window_ns, limit.subwindows
    return (limit.window_ns, 1) if isinstance(limit, FixedWindow) else None


class StackTemplate:
    """The constant parts of what headers say about the stacked *limits* of the rule *name*."""

    __slots__ = ("_templates", "has_queue", "limits", "policies")

    def __init__(self, name: str, limits: tuple[Limit, ...]) -> None:
        self.limits = limits
        self._templates = [
            limit_template(name if place == 1 else f"{name}/{place}", limit)
            for place, limit in enumerate(limits, 1)
        ]
        self.has_queue = any(template.queue is not None for template in self._templates)
        self.policies = b", ".join([template.policy_line[1] for template in self._templates])

    def lines(self, decision: Decision, now_ns: int) -> Pairs:
        """Return the usual families of headers of a request that this rule alone allowed, and that
        the store counted."""
        items, tightest, left, reset_ns = self.items(decision)
        return _lines_of(tightest, left, reset_ns, now_ns, self.policies, b", ".join(items))

    def items(self, decision: Decision) -> tuple[list[bytes], LimitTemplate, int, int]:
        """Return the items of `RateLimit`, and the limit with least left: its template, what is
        left, and the nanoseconds until all is back."""
        tightest = self._templates[0]
        least = back_ns = 0
        items: list[bytes] = []
        for place, (left, reset_ns) in enumerate(decision.figures):
            template = self._templates[place]
            if not items or left < least:
                tightest, least, back_ns = template, left, reset_ns
            items.append(template.left(left, reset_ns))
        return items, tightest, least, back_ns


_TEMPLATES: Final[dict[tuple[str, int], LimitTemplate]] = {}
_STACK_TEMPLATES: Final[dict[tuple[str, int], StackTemplate]] = {}
"""Both by the `id` of a limit or of limits, to which the template keeps a reference: hashing a
limit would take longer than all else."""


def limit_template(name: str, limit: Limit) -> LimitTemplate:
    """Return the template of *limit*, made once."""
    found = _TEMPLATES.get((name, id(limit)))
    if found is None:
        if len(_TEMPLATES) >= MOST_TEMPLATES:
            _TEMPLATES.clear()
        found = _TEMPLATES[name, id(limit)] = LimitTemplate(name, limit)
    return found


def rule_template(name: str, limits: tuple[Limit, ...]) -> LimitTemplate | StackTemplate:
    """Return the template of the *limits* of a rule, made once."""
    return limit_template(name, limits[0]) if len(limits) == 1 else stack_template(name, limits)


def stack_template(name: str, limits: tuple[Limit, ...]) -> StackTemplate:
    """Return the template of the stacked *limits* of a rule, made once."""
    found = _STACK_TEMPLATES.get((name, id(limits)))
    if found is None:
        if len(_STACK_TEMPLATES) >= MOST_TEMPLATES:
            _STACK_TEMPLATES.clear()
        found = _STACK_TEMPLATES[name, id(limits)] = StackTemplate(name, limits)
    return found


def allowed_lines(shown: Sequence[tuple[str, Decision]], now_ns: int) -> Pairs | None:
    """Return the usual families of headers of an allowed request; None if there is more to say.

    *shown* has the rules that responses show, each with its decision.
    """
    policies, items = [], []
    tightest: LimitTemplate | None = None
    least = back_ns = 0
    for name, decision in shown:
        if not decision.allowed or decision.delay_ns or decision.source in WITHOUT_FIGURES:
            return None
        if decision.parts:
            limits = decision.stack
            if limits is None or (rule := stack_template(name, limits)).has_queue:
                return None
            own, template, left, reset_ns = rule.items(decision)
            policies.append(rule.policies)
            items += own
        else:
            template = limit_template(name, decision.limit)
            if template.queue is not None:
                return None
            if len(shown) == 1:
                return template.lines(decision, now_ns)
            left, reset_ns = decision.remaining, decision.reset_after_ns
            policies.append(template.policy_line[1])
            items.append(template.left(left, reset_ns))
        if tightest is None or left < least:
            tightest, least, back_ns = template, left, reset_ns
    if tightest is None:
        return []
    return _lines_of(tightest, least, back_ns, now_ns, b", ".join(policies), b", ".join(items))


def _lines_of(
    tightest: LimitTemplate, left: int, reset_ns: int, now_ns: int, policies: bytes, items: bytes
) -> Pairs:
    return [
        tightest.total_line,
        (b"x-ratelimit-remaining", b"%d" % left),
        tightest.reset_line(reset_ns, now_ns),
        (b"ratelimit-policy", policies),
        (b"ratelimit", items),
    ]


def text_lines(lines: Pairs) -> Lines:
    """Return *lines* of `allowed_lines` as text, with the usual spelling of names."""
    return [(_SPELLED[name], value.decode("ascii")) for name, value in lines]


def encoded_lines(lines: Iterable[tuple[str, str]]) -> Pairs:
    """Return *lines* as ASGI has them: bytes, with names in lower case."""
    return [(_encoded_name(name), value.encode("latin-1")) for name, value in lines]


@lru_cache(maxsize=256)
def _encoded_name(name: str) -> bytes:
    return name.lower().encode("latin-1")


def headers_for(answer: Answer, *, now_ns: int, options: ResponseOptions = DEFAULT) -> Lines:
    """Return what a response says of the limits of its request; a denial has `Retry-After`.

    *now_ns* is the time since the epoch. Each name comes once.
    """
    denial = None if answer.allowed else denial_of(answer, options)
    return _headers(answer, denial, now_ns, options)


@dataclass(frozen=True, slots=True)
class DenialResponse:
    """The response to a denied request. *headers* has all but `Content-Length`."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def response_for(
    answer: Answer, *, now_ns: int, options: ResponseOptions = DEFAULT, accept: str | None = None
) -> DenialResponse:
    """Return the response to a denied request; `UsageError` if it was allowed.

    *accept* is the `Accept` header of the request, by which a client may ask for problem details.
    """
    denial = denial_of(answer, options)
    problem = options.problem or prefers_problem(accept)
    media_type, body = denial_body(answer, denial, problem=problem)
    lines: Lines = []
    if answer.protocol is not None and not denial.is_silent:
        lines = retry_headers(denial.wait_ns)
    lines += _headers(answer, denial, now_ns, options)
    lines += [("Content-Type", media_type), ("Cache-Control", "no-store")]
    return DenialResponse(denial.status, tuple(lines), body)


def _headers(answer: Answer, denial: Denial | None, now_ns: int, options: ResponseOptions) -> Lines:
    lines: Lines = []
    if denial is None or not denial.is_silent:
        wait = None if denial is None else denial.retry_after
        lines = _rate_lines(answer, now_ns, options, wait)
        if answer.protocol is not None:
            lines += rate_limit_headers(answer.protocol, _call_figures(answer), now_ns)
        if wait is not None:
            lines.append((RETRY_AFTER, str(wait)))
    if answer.is_replay and answer.allowed:
        lines.append((REPLAYED, "true"))
    if options.orca and answer.loads:
        lines.append(orca_line(answer.loads, answer.requests_per_second))
    return lines


def _rate_lines(
    answer: Answer, now_ns: int, options: ResponseOptions, retry_after: int | None
) -> Lines:
    policies, items, loads = [], [], []
    tightest: tuple[str, Decision, LimitTemplate] | None = None
    open_limits = [
        limit
        for one in answer.rules
        if one.headers == "on" and one.decision.source != GATE
        for limit in one.limits
    ]
    for name, decision in open_limits:
        template = limit_template(name, decision.limit)
        policies.append(template.policy)
        if decision.source in WITHOUT_FIGURES:
            continue
        items.append(template.item(decision, retry_after))
        if template.queue is not None:
            loads.append(load_of_queue(name, template.queue, decision))
        if tightest is None or binds_more(decision, tightest[1]):
            tightest = name, decision, template
    lines: Lines = []
    if tightest is not None and tightest[1].allowed == answer.allowed:
        lines = _tightest_lines(*tightest, now_ns, options)
    if options.ratelimit and policies:
        lines.append((ratelimit_draft11.POLICY, ", ".join(policies)))
        if items:
            lines.append((ratelimit_draft11.LIMIT, ", ".join(items)))
    if loads or answer.loads or answer.delayed_ns:
        lines += pressure_lines([*loads, *answer.loads], _delay_ns(answer), options)
    return lines


def _call_figures(answer: Answer) -> dict[Counted, Figures]:
    """The figures of the tightest limit of each thing that is counted; of slots there are none."""
    tightest: dict[Counted, Decision] = {}
    for one in answer.rules:
        for _, decision in one.limits if one.headers == "on" else ():
            if decision.source in WITHOUT_FIGURES or isinstance(decision.limit, Concurrency):
                continue
            if one.counts not in tightest or binds_more(decision, tightest[one.counts]):
                tightest[one.counts] = decision
    return {
        counted: Figures(decision.limit.quota, decision.remaining, decision.reset_after_ns)
        for counted, decision in tightest.items()
    }


def _tightest_lines(
    name: str, decision: Decision, template: LimitTemplate, now_ns: int, options: ResponseOptions
) -> Lines:
    left, reset_ns = str(bounded(decision.remaining)), decision.reset_after_ns
    lines: Lines = []
    if options.x_ratelimit:
        reset = str(template.reset_of(decision, now_ns))
        lines += zip(NAMES, (template.total, left, reset), strict=True)
    if options.draft03:
        figures = (template.total, left, str(seconds_up(reset_ns)))
        lines += zip(DRAFT_03_NAMES, figures, strict=True)
    if options.bucket:
        # An id of the counter alone: equal ids, one counter.
        counter = f"{name}\0{decision.key}".encode("utf-8", "surrogatepass")
        digest = blake2b(counter, digest_size=12, key=options.bucket_secret)
        lines.append((BUCKET, digest.hexdigest()))
    return lines


def _delay_ns(answer: Answer) -> int:
    """Return how long the request is delayed: in the queues of limits, one of which is the longest,
    and then in this process."""
    if not answer.allowed:
        return answer.delayed_ns
    delays = [one.decision.delay_ns for one in answer.rules if one.headers == "on"]
    return answer.delayed_ns + max(delays, default=0)


def expose_headers(options: ResponseOptions = DEFAULT) -> list[str]:
    """Return the names for `Access-Control-Expose-Headers`, without which browsers hide them."""
    families = (
        (options.x_ratelimit, NAMES),
        (options.draft03, DRAFT_03_NAMES),
        (options.bucket, (BUCKET,)),
        (options.ratelimit, (ratelimit_draft11.POLICY, ratelimit_draft11.LIMIT)),
        (options.pressure, (pressure.QUEUE, pressure.DELAY)),
    )
    chosen = [name for is_sent, names in families if is_sent for name in names]
    return [*chosen, RETRY_AFTER, REPLAYED]


def merged(
    existing: Iterable[tuple[str, str]], ours: Iterable[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the lines of *existing* with *ours* after them, each policy and header once.

    A header of ours replaces one of the same name, in any case. `RateLimit`, `RateLimit-Policy` and
    `Headgate-Queue` are lists: policies of a server behind us stay, as the draft asks of
    intermediaries, unless they have the name of one of ours. The load that an app reports itself
    stays: it knows better.
    """
    new, old = list(ours), list(existing)
    if any(name.lower().startswith(pressure.ORCA) for name, _ in old):  # or `...-bin`
        new = [line for line in new if line[0] != pressure.ORCA]
    replaced = {name.lower() for name, _ in new}
    if not any(name.lower() in replaced for name, _ in old):
        return old + new
    known = {
        name.lower(): ratelimit_draft11.names_in(value)
        for name, value in new
        if name.lower() in LISTS
    }
    kept = []
    for name, value in old:
        field = name.lower()
        if field in known:
            left = ratelimit_draft11.without_policies(value, known[field])
            kept += [(name, left)] if left else []
        elif field not in replaced:
            kept.append((name, value))
    return kept + new
