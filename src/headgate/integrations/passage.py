"""One request on its way through an app: what it has been granted so far, and what is to be said.

Several parts of an app may ask about the same request: a middleware, a route, a function. They find
each other in the passage. If one refuses, what the earlier ones charged is given back: a refusal
consumes nothing. Whoever sends the response tells of all of them at once, and at the end what was
held is settled and what was occupied is set free.
"""

from __future__ import annotations

import logging
import random
import re
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from headgate.engine.holds import admitting
from headgate.engine.verdict import tells_replay, told_of
from headgate.integrations.allowance import free_name
from headgate.policy.loader.diagnostics import shown
from headgate.policy.matcher import cost_after, cost_said_after
from headgate.responses import Answer
from headgate.stores.base import checked_cost
from headgate.units import MINUTE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headgate.clock import Clock
    from headgate.engine.holds import Owed
    from headgate.engine.plan import Plan, Queueing, RulePlan
    from headgate.engine.rule import CompiledRule
    from headgate.engine.verdict import Verdict
    from headgate.integrations.allowance import ChargeWhen
    from headgate.integrations.gate import Gate
    from headgate.overload import Turn
    from headgate.policy.model import Rule
    from headgate.responses import Told
    from headgate.runtime.heartbeat import AsyncBeat, Beat


_LENGTH: Final = re.compile("[0-9]{1,18}")

BUSY: Final = frozenset({502, 503, 504})
"""What is answered for want of capacity further on."""

SWITCHED: Final = 101
"""The status of a websocket that was accepted."""

NOTHING: Final[Mapping[str, ChargeWhen]] = MappingProxyType({})
"""No allowance that minds the outcome."""


@dataclass(frozen=True, slots=True)
class Responded:
    """How a request ended. *error*: what was raised in place of a response; the status is 500 then.

    *headers* are lines in their order; `header` finds one by its name in lower case.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    error: BaseException | None = None

    @property
    def wants_capacity(self) -> bool:
        """Whether it failed because something further on was too busy, or took too long."""
        return self.status in BUSY or isinstance(self.error, TimeoutError)

    def header(self, name: str) -> str | None:
        """The value of the header *name* (in lower case); of several lines the first."""
        return next((value for other, value in self.headers if other.lower() == name), None)

    def header_lines(self, name: str) -> list[str]:
        """The values of all lines of the header *name* (in lower case), in their order."""
        return [value for other, value in self.headers if other.lower() == name]


@dataclass(slots=True)
class Entry:
    """What is to be asked about a request, and which outcomes count, by rule.

    (Nobody changes it, or a grant. They are not frozen because they are made for every request, and
    that would triple the time it takes.)
    """

    plan: Plan
    charge_when: Mapping[str, ChargeWhen] = field(default_factory=lambda: NOTHING)
    ttl_ns: int = 60_000_000_000
    is_known_at_once: bool = False
    """Whether what is held depends on nothing but the outcome, so that its beginning settles it."""

    after: tuple[RulePlan, ...] = ()
    """The rules that are to be told what the request has cost."""

    refusal: Verdict | None = None
    """That the request is refused already, and nobody is to be asked."""

    @property
    def counts_bytes(self) -> bool:
        """Whether one of them goes by the bytes of the response."""
        return any(_goes_by_bytes(one.rule.declared) for one in self.after)


@dataclass(slots=True)
class Grant:
    """What a request was granted by *gate*: *turns* at its gates, too."""

    gate: Gate
    entry: Entry
    verdict: Verdict
    turns: tuple[Turn, ...] = ()
    began_ns: int | None = None
    """When it began, if it is to be told how long it took."""
    beat: Beat | AsyncBeat | None = None
    """What keeps its slots while it lasts."""

    @property
    def has_an_end(self) -> bool:
        """Whether there is anything to do at the end of the request."""
        verdict = self.verdict
        if verdict.held is None and verdict.slots is None and verdict.local_slots is None:
            return bool(self.entry.after or self.turns) or self.began_ns is not None
        return True

    def end(self, responded: Responded, *, is_refusal: bool) -> None:
        """Set free at once what waits for nobody: the turns of the request, and how long it took.

        That it was refused further in says nothing of how the app fares; nor does how long a
        websocket was open.
        """
        if is_refusal:
            for turn in self.turns:
                turn.cancel()
        else:
            self._end_turns(responded.status, responded.error)
        if self.beat is not None:
            self.beat.stop()
        if self.began_ns is not None and not is_refusal and responded.status != SWITCHED:
            self.gate.note(self.began_ns, failed=responded.status >= 500)

    def end_at_once(self, status: int, error: BaseException | None) -> bool:
        """Do all that there is to do at the end, if no store has to be told; False if one has."""
        verdict = self.verdict
        if verdict.held is not None or verdict.slots is not None or self.entry.after:
            return False
        if verdict.local_slots is not None or self.beat is not None:
            return False
        if self.turns:
            self._end_turns(status, error)
        if self.began_ns is not None:
            self.gate.note(self.began_ns, failed=status >= 500)
        return True

    def _end_turns(self, status: int, error: BaseException | None) -> None:
        succeeded = status not in BUSY and not isinstance(error, TimeoutError)
        for turn in self.turns:
            turn.is_timed = status != SWITCHED
            turn.release(succeeded=succeeded)

    @property
    def is_open(self) -> bool:
        """Whether something is held that has yet to be settled."""
        held = self.verdict.held
        return held is not None and not held.once.is_done

    def amounts(self, responded: Responded, used: Mapping[str, int]) -> dict[str, int]:
        """What each rule is to be settled for: what was reported, or what the outcome says.

        Of what is not in it, the whole of what was held is charged.
        """
        found = {}
        for rule in () if self.verdict.held is None else self.verdict.held.ids:
            counts = self.entry.charge_when.get(rule)
            if counts is not None and not counts(responded):
                found[rule] = 0
            elif rule in used:
                found[rule] = used[rule]
        return found


class Passage:
    """The way of one request; made by the first part of the app that asks about it.

    *is_watched*: somebody will send the headers and see the end of the response.
    *is_cross_origin*: a browser asks for a page of another origin; there was an `Origin`.
    *is_debugged*: who asks may hear how it was decided.
    `asked` are the gates that have been asked what applies to the request as a whole. Whoever sends
    the response adds the bytes of its body to `sent` if it `counts_bytes`. `turns` are those that
    it had in this process, `queues` where it took them.
    """

    __slots__ = (
        "__weakref__",
        "asked",
        "counts_bytes",
        "gate",
        "grants",
        "is_cross_origin",
        "is_debugged",
        "is_replay",
        "is_watched",
        "jitter",
        "queues",
        "refusal",
        "refusal_told",
        "sent",
        "told",
        "turns",
        "unnamed",
        "used",
    )

    def __init__(
        self,
        gate: Gate,
        *,
        is_watched: bool = False,
        is_cross_origin: bool = False,
        is_debugged: bool = False,
    ) -> None:
        self.gate = gate
        self.is_debugged = is_debugged
        self.is_watched = is_watched
        self.is_cross_origin = is_cross_origin
        self.grants: list[Grant] = []
        self.told: list[Told] = []
        self.asked: set[Gate] = set()
        self.refusal: Verdict | None = None
        self.refusal_told: tuple[Told, ...] = ()
        self.is_replay = False
        self.jitter = 0.0  # drawn once: the header and the body tell the same wait
        self.used: dict[str, int] = {}
        self.unnamed = 0
        self.counts_bytes = False
        self.sent = 0
        self.turns: tuple[Turn, ...] = ()
        self.queues: tuple[Queueing, ...] = ()

    def report(self, amounts: Mapping[str, int]) -> None:
        """Note what the request really cost, by the name of an allowance or the id of a rule."""
        for name, amount in amounts.items():
            checked_cost(amount, f"what was used of {name!r}")
        self.used.update(amounts)

    def next_unnamed(self) -> int:
        """The number of the next allowance of this request that has no name, from 0."""
        self.unnamed += 1
        return self.unnamed - 1

    def granted(self, grant: Grant) -> None:
        """Note what was granted."""
        self.grants.append(grant)
        if grant.entry.after and grant.entry.counts_bytes:
            self.counts_bytes = True
        self.turns += grant.turns
        if grant.turns:
            self.queues += grant.entry.plan.queues
        if grant.verdict.is_replay and tells_replay(grant.verdict):
            self.is_replay = True
        new = told_of(grant.verdict)
        self.told += new if not self.told else _told_apart(new, {one.name for one in self.told})

    def refused(self, verdict: Verdict) -> list[Grant]:
        """Note a refusal; what is to be given back at once.

        Where somebody sees the response, that decides: an app may catch a refusal, and serve the
        request all the same.
        """
        taken = [] if self.is_watched else self.take()
        self.refusal = verdict
        self.refusal_told = told_of(verdict)
        if verdict.plan is not None and verdict.plan.queues:
            self.queues += verdict.plan.queues
        self.jitter = random.random()  # noqa: S311 (not a secret)
        return taken

    def is_refusal(self, status: int) -> bool:
        """Whether a response with *status* is that of a refusal, which consumes nothing."""
        options = self.gate.responses
        refusing = (429, options.outage_status, options.shed_status)
        return self.refusal is not None and status in refusing

    @property
    def is_silent(self) -> bool:
        """Whether its response has nothing to say of limits."""
        if self.told or self.refusal_told or self.is_replay:
            return False
        return not self.queues and not self.is_debugged

    @property
    def has_an_end(self) -> bool:
        """Whether there is anything to do at the end of the request."""
        if self.refusal is not None:
            return bool(self.grants)
        for grant in self.grants:  # noqa: SIM110 (half the time of any())
            if grant.has_an_end:
                return True
        return False

    def end_at_once(self, status: int, error: BaseException | None) -> bool:
        """End all that can be ended without a store; whether that was all."""
        if self.refusal is not None:
            return not self.grants
        grants = self.grants
        while grants and grants[-1].end_at_once(status, error):
            grants.pop()
        return not grants

    def take(self) -> list[Grant]:
        """What has to be ended, the latest first; it is not given twice."""
        taken, self.grants = self.grants[::-1], []
        return taken

    def answer(self, status: int | None = None) -> Answer:
        """What a response with *status* says; None: that of a refusal.

        An app that answers a refusal with something else tells of what was granted.
        """
        if self.refusal is None or (status is not None and status < 400):
            answer = Answer(allowed=True, told=tuple(self.told), is_replay=self.is_replay)
        else:
            answer = Answer(allowed=False, told=self.refusal_told, jitter=self.jitter)
        if self.queues:
            answer.loads = tuple(self.gate.turns.loads(self.queues))
            answer.delayed_ns = sum(turn.waited_ns for turn in self.turns)
        return answer


def announced_size(headers: Iterable[tuple[str, str]]) -> int | None:
    """How long a body is by the header of its response; None if it does not say."""
    said = [value for name, value in headers if name.lower() == "content-length"]
    return int(said[0]) if len(said) == 1 and _LENGTH.fullmatch(said[0]) else None


def _goes_by_bytes(rule: Rule) -> bool:
    return rule.cost.after is not None and rule.cost.after.header is None


def _told_apart(told: Iterable[Told], taken: set[str]) -> Iterator[Told]:
    """*told*, those with a number after their name whose name is *taken*.

    Two gates on the way of a request may well have limits that are called the same.
    """
    for one in told:
        name = free_name(one.name, taken)
        taken.add(name)
        yield replace(one, name=name)


# What requests have cost when they are over: what a response says of it, and what gets lost.
#
# A rule with `cost: {after: ...}` goes by what the app has reported under its id, else by a header
# of the response, else by the bytes of its body. What cannot be charged is never the response's
# fault: it is counted, and told in the log.


LOG: Final = logging.getLogger("headgate.integrations")

EVERY_NS: Final = MINUTE
"""How long nothing is said of what is lost once something has been."""


class Afterwards:
    """What an app could not charge afterwards.

    Threads may share it: the worst that two at a time do is to say something twice.
    """

    __slots__ = ("_clock", "_quiet_until_ns", "_unsaid", "lost")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_until_ns: int | None = None
        self._unsaid: set[str] = set()
        self.lost = 0
        """How often the store could not be told what a request had cost under a rule."""

    def note_lost(self, left: Owed) -> None:
        """Count what nobody was told, and say so once in a while."""
        if not left:
            return
        self.lost += len(left)
        now = self._clock()
        if self._quiet_until_ns is None or now >= self._quiet_until_ns:
            self._quiet_until_ns = now + EVERY_NS
            rules = ", ".join(sorted({one.rule.id for one, _ in left}))
            told = "the store is gone: what requests had cost was not charged (%s); %d so far"
            LOG.warning(told, rules, self.lost)

    def note_unsaid(self, rule: CompiledRule, header: str, lines: list[str]) -> None:
        """Say, once for each rule, that a response does not say what its request has cost."""
        if rule.id in self._unsaid:
            return
        self._unsaid.add(rule.id)
        found = "nothing" if not lines else "several lines" if lines[1:] else shown(lines[0])
        told = "rule %s: a response has %s in the header %s, so nothing was charged afterwards; %s"
        LOG.warning(told, rule.id, found, header, "expected one whole number")


def owed(grant: Grant, passage: Passage, responded: Responded) -> Owed:
    """What the rules that were *granted* are to be charged, now that the response is over."""
    found = []
    for one in admitting(grant.entry.after, grant.verdict):
        cost = _cost(one, grant, passage, responded)
        if cost is not None and cost > one.cost:
            found.append((one, cost - one.cost))
    return found


def _cost(one: RulePlan, grant: Grant, passage: Passage, responded: Responded) -> int | None:
    """What the request has cost under a rule; None if nobody says it."""
    after = one.rule.declared.cost.after
    assert after is not None  # noqa: S101 (mypy: an entry has no others)
    reported = passage.used.get(one.rule.id)
    if reported is not None:
        return cost_after(after, reported)
    if after.header is None:
        return cost_after(after, passage.sent)
    lines = responded.header_lines(after.header)
    cost = cost_said_after(after, lines)
    is_good = responded.status < 400 and responded.error is None
    if cost is None and (lines or is_good):  # an error need not say what it has cost
        grant.gate.afterwards.note_unsaid(one.rule, after.header, lines)
    return cost
