"""Limits outgoing calls by the rules of a policy, those of language models by what they use.

What a call reserves is settled when its response has ended: by the usage in it, or as reserved if
that is unknown. A call that is denied waits, first come, first served among those with the same
counters. Calls that end give back what they did not use, so the first in a line looks again each
second, and at once if the call was of the same client.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from headgate.clients.caller import CallDenial
from headgate.control.watched_policy import WatchedPolicy
from headgate.engine.recorder import record
from headgate.engine.use_cases import Engine
from headgate.errors import OptionError, StoreError
from headgate.fork import watch_forks
from headgate.observability.decision_recorder import read_timer
from headgate.runtime.effects import Interrupted, Sleep, Wait
from headgate.runtime.heartbeat import StartHeartbeat, new_name
from headgate.runtime.waiting_lines import Lines, Place, naps
from headgate.units import SECOND, seconds_at_least

if TYPE_CHECKING:
    from headgate.clients.signals import ResponseInfo
    from headgate.clock import Clock
    from headgate.engine.plan import Plan
    from headgate.engine.request import Request
    from headgate.engine.verdict import Verdict
    from headgate.llm.call import ModelCall
    from headgate.policy.compiled import CompiledPolicy
    from headgate.runtime.effects import Effects
    from headgate.runtime.heartbeat import Beat

    Counters = frozenset[tuple[str, str]]
    """The rules that decide on a call, and its key under each."""

RECHECK_NS: Final = SECOND
"""The longest time until the first in a line looks again."""


class PolicyLimiter:
    """The rules of *policy*, the path of a file or a directory or a `Policy`, for outgoing calls.

    *store* and *namespace* say where the counters are; waits are measured and slept on *now_ns* and
    *clock*. Raises `PolicyError` for files that cannot be read, `OptionError` for rules that are
    for apps alone. Safe to share among threads.
    """

    def __init__(
        self, policy: Any, *, store: Any, namespace: str, now_ns: Clock, clock: Clock | None
    ) -> None:
        self._rules = WatchedPolicy(policy, salt=b"", namespace=namespace, clock=clock)
        self.engine = Engine(store, clock=clock if isinstance(store, str) else None)
        self._rules.subscribe(self._adopt)
        self._lines = Lines()
        self._now_ns, self._clock = now_ns, clock
        self.after_fork()
        watch_forks(self)

    def after_fork(self) -> None:
        """Begin without calls in a forked process: they are its parent's."""
        self._in_flight: WeakSet[LimitedCall] = WeakSet()
        self._lock = threading.Lock()

    def _adopt(self, compiled: CompiledPolicy) -> None:
        for rule in compiled.policy.rules:
            if rule.fair is not None or rule.cost.after is not None:
                field = "fair" if rule.fair is not None else "cost: {after: ...}"
                raise OptionError(f"the rule {rule.id!r} has {field}, which is for apps alone")
        self.engine.set_accuracies(self, compiled.accuracies)

    def reads_model(self, request: Request) -> bool:
        """True if a rule needs to know what *request* asks of a language model."""
        self._rules.watch()
        return self._rules.compiled.reads_model(request)

    def closing(self) -> Effects[None]:
        """Stop watching the policy and close the store."""
        self._rules.close()
        yield from self.engine.closing()

    def checking(
        self, request: Request, model_call: ModelCall | None, timeout: float
    ) -> Effects[LimitedCall | CallDenial | None]:
        """Allow *request*, which may wait for *timeout* seconds; None if nothing limits it."""
        plan = self._plan(request)
        if not plan.rules:
            return None
        began_ns, until_ns = read_timer(), self._now_ns() + round(timeout * SECOND)
        counters = frozenset((one.rule.id, one.key) for one in plan.deciding)
        line, verdict = repr(sorted(counters)), None
        if not self._lines.has(line):
            verdict = yield from self._deciding(plan)
        if verdict is None or self._wait_ns(verdict, counters, until_ns):
            verdict = yield from self._in_line(request, counters, line, until_ns)
            if verdict is None:
                peeked = yield from self.engine.peek(self._plan(request))
                return CallDenial(peeked.retry_after, lacks_store=False)
        record(verdict, began_ns, is_timed=False)
        if not verdict.allowed:
            return CallDenial(verdict.retry_after, verdict.source == "fail_closed")
        if verdict.delay_ns > max(until_ns - self._now_ns(), 0):
            yield from self.engine.undo(verdict)
            return CallDenial(seconds_at_least(verdict.delay_ns), lacks_store=False)
        return (yield from self._begin(LimitedCall(self, verdict, counters, model_call), line))

    def _plan(self, request: Request) -> Plan:
        self._rules.watch()
        compiled = self._rules.compiled
        return compiled.plan(request, lease=new_name() if compiled.has_slots else None)

    def _in_line(
        self, request: Request, counters: Counters, line: str, until_ns: int
    ) -> Effects[Verdict | None]:
        """Wait in *line* until the request is allowed or cannot be in time; None if those before it
        took all of the time."""
        place = Place()
        try:
            is_first = self._lines.join(line, place)
            left_ns = max(until_ns - self._now_ns(), 0)
            if not is_first and not (yield Wait(place.signal, seconds_at_least(left_ns))):
                return None
            while True:
                signal = self._lines.arm(place)
                verdict = yield from self._deciding(self._plan(request))
                wait_ns = self._wait_ns(verdict, counters, until_ns)
                if not wait_ns:
                    return verdict
                if hasattr(self._clock, "sleep"):  # a clock for tests
                    yield Sleep(seconds_at_least(wait_ns), self._clock)
                else:
                    yield Wait(signal, seconds_at_least(wait_ns))
        finally:
            self._lines.leave(line, place)

    def _wait_ns(self, verdict: Verdict, counters: Counters, until_ns: int) -> int:
        """The time to wait until a request with *verdict* is decided again; 0: not at all."""
        left_ns, wait_ns = until_ns - self._now_ns(), verdict.retry_after_ns
        if not wait_ns or left_ns <= 0 or verdict.source == "fail_closed":
            return 0
        if wait_ns > left_ns and not (verdict.is_estimate or self._is_in_flight(counters)):
            return 0
        return min(wait_ns, left_ns, RECHECK_NS)

    def _deciding(self, plan: Plan) -> Effects[Verdict]:
        """Decide once; not recorded, as a call may look many times."""
        engine = self.engine
        if plan.open:
            hold_ns = max(one.rule.hold_ns or 0 for one in plan.rules)
            name = plan.lease or new_name()
            verdict = yield from engine.reserve(plan, name, hold_ns, is_recorded=False)
        else:
            verdict = yield from engine.decide(plan, is_recorded=False)
        if not verdict.allowed and (verdict.slots or verdict.local_slots):  # of shadow rules
            yield from engine.release(verdict)
        return verdict

    def _is_in_flight(self, counters: Counters) -> bool:
        """True if a call of this client may give back something under *counters*."""
        with self._lock:
            return any(not counters.isdisjoint(one.counters) for one in self._in_flight)

    def _begin(self, call: LimitedCall, line: str) -> Effects[LimitedCall]:
        """Have *call* keep what it holds, and wait for its place in a queue."""
        verdict = call.verdict
        try:
            if verdict.slots is not None or verdict.local_slots is not None:
                renew = partial(self.engine.renew, verdict)
                call.beat = yield StartHeartbeat(renew, verdict.slots_last_ns or 0, call)
            for seconds in naps(verdict.delay_ns):
                yield Sleep(seconds, self._clock)
        except Interrupted:
            yield from call.undoing()
            raise
        if call.has_end:
            call.line = line
            with self._lock:
                self._in_flight.add(call)
        return call

    def end(self, call: LimitedCall) -> None:
        """Have those look again that *call* has made room for."""
        with self._lock:
            self._in_flight.discard(call)
        self._lines.wake(call.line)


class LimitedCall:
    """A call that *limiter* allowed by *verdict*, until its response has ended."""

    line = ""
    beat: Beat | None = None
    _status = 0

    def __init__(
        self,
        limiter: PolicyLimiter,
        verdict: Verdict,
        counters: Counters,
        model_call: ModelCall | None,
    ) -> None:
        self.verdict = verdict
        self.counters = counters
        self._limiter = limiter
        self._model_call = model_call
        self._ending = threading.Lock()

    @property
    def has_end(self) -> bool:
        """True if something is settled or released when its response has ended."""
        verdict = self.verdict
        held = verdict.held, verdict.slots, verdict.local_slots
        return any(one is not None for one in held)

    def begin_response(self, response: ResponseInfo) -> None:
        """Read *response* from now on."""
        self._status = response.status
        if self._model_call is not None:
            kind, coding = response.field("content-type"), response.field("content-encoding")
            self._model_call.begin_response(kind, coding)

    def feed(self, part: bytes) -> None:
        """Read the next *part* of the response's body."""
        if self._model_call is not None:
            self._model_call.feed(part)

    def ending(self) -> Effects[None]:
        """Settle what it holds by what it has used, and release its slots; once."""
        if not self._ends():
            return
        engine, verdict, amounts = self._limiter.engine, self.verdict, self._amounts()
        try:
            if verdict.held is not None:
                with suppress(StoreError):  # the hold expires, as charged
                    yield from engine.settle(verdict, amounts)
        finally:
            yield from engine.release(verdict)
            self._limiter.end(self)

    def undoing(self) -> Effects[None]:
        """Give everything back: it was not sent."""
        if self._ends():
            yield from self._limiter.engine.undo(self.verdict)
            self._limiter.end(self)

    def _ends(self) -> bool:
        """True at the first end."""
        if self.beat is not None:
            self.beat.stop()
        return self._ending.acquire(blocking=False)

    def _amounts(self) -> dict[str, int]:
        """The amounts to settle, by rule. A rule that is not in it is charged what it holds."""
        held, call = self.verdict.held, self._model_call
        if held is None or call is None:
            return {}
        return {
            one.rule.id: call.cost(one.rule.final_cost, one.cost, self._status)
            for one in held.rules
            if one.rule.final_cost is not None
        }
