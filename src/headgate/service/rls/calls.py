"""The method `ShouldRateLimit`: from the bytes of a request to those of the reply."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from headgate.engine.calls import decide_call, decide_call_now, is_allowed
from headgate.engine.tracing import traced
from headgate.errors import StoreError
from headgate.observability import METRICS
from headgate.responses.debug import NO_STORE, decision_lines
from headgate.runtime.bounded_cache import BoundedCache
from headgate.runtime.drivers import adrive, drive
from headgate.service.core import is_debugged
from headgate.service.grpc.method import CallError, Code
from headgate.service.rls import messages
from headgate.service.rls.answer import ReplyEncoder
from headgate.service.rls.descriptors import Amounts, PlannedCall
from headgate.service.rls.envoy_lines import EnvoyLines
from headgate.service.rls.held_calls import HeldCalls
from headgate.service.rls.http_endpoints import answer_json
from headgate.service.rls.requests import RlsOptions, read_call
from headgate.service.rls.rule_lines import RuleLines
from headgate.service.rls.shapes import Shapes

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence

    from headgate.engine.calls import Part
    from headgate.observability import Counter
    from headgate.responses.debug import Traced
    from headgate.runtime.effects import Effects
    from headgate.service.core import Core
    from headgate.service.rls.answer import Decisions


MAX_BYTES: Final = 64 << 20
"""The bytes of all calls that are kept ready, as `_size_of` estimates them."""

LARGEST_MESSAGE: Final = 512
"""The bytes of a message above which its call is not kept: callers choose what is in it."""

_READY_BYTES: Final = 2_000
_LINE_BYTES: Final = 600
_CHECK_BYTES: Final = 400
_COPIES: Final = 3
"""Copies of a message: itself, its texts, and the keys that are made of them."""

_WIDEST: Final = 4
"""Bytes of each character in a text with one beyond Latin-1."""

_NEAR_PERCENT: Final = 80
_NO_STORE: Final = "the store of the counters does not answer"


class RateLimitCalls:
    """Envoy's rate limit service on the rules and the store of *core*; for one event loop.

    The configuration of envoyproxy/ratelimit, if there is one, decides calls of its domains; the
    rules decide all others.
    """

    def __init__(self, core: Core, options: RlsOptions | None = None) -> None:
        options = options or RlsOptions()
        self._core = core
        self._in_force = core.rules.in_force
        self._options = options
        self._engine = core.rules.engine
        self._amounts = Amounts(options.reports)
        self._envoy_lines = EnvoyLines(
            self._amounts, namespace=core.namespace, on_store_failure=options.on_store_failure
        )
        self._rule_lines = RuleLines(self._amounts, self._envoy_lines)
        self._encoder = ReplyEncoder(core, options)
        self._held_calls = HeldCalls(core)
        # By message: to read one and find its plan takes six times as long as to decide it.
        self._ready: BoundedCache[PlannedCall] = BoundedCache(MAX_BYTES)
        self._shapes = Shapes(self._in_force.compiled.policy, core.envoy)
        self._basis: tuple[object, ...] = ()

    def should_rate_limit(self, request: bytes) -> bytes | Coroutine[Any, Any, bytes]:
        """The reply to *request*, at once if the store does not have to be waited for.

        Raises `CallError` for a call that cannot be answered.
        """
        in_force, version = self._in_force, self._amounts.version
        basis = in_force.compiled, self._core.envoy, in_force.scale.factor, version
        if basis != self._basis:
            self._basis, self._ready = basis, BoundedCache(MAX_BYTES)
            self._shapes = Shapes(in_force.compiled.policy, self._core.envoy)
        known = self._ready.get(request)
        planned = self._read(request) if known is None else known[0]
        if known is None and planned.is_once:
            deciding = self._decide_once(planned)
            return adrive(deciding) if self._engine.store.waits else drive(deciding)
        try:
            decided = decide_call_now(self._engine, planned.plan)
            if decided is None:
                if self._engine.store.waits:
                    return self._reply_later(planned)
                decided = drive(decide_call(self._engine, planned.plan))
        except StoreError as error:
            raise CallError(Code.UNAVAILABLE, _NO_STORE) from error
        return self._reply(planned, decided.decisions)

    async def json(self, body: bytes) -> tuple[int, bytes]:
        """The status and the body of the reply to `POST /json`."""
        return await answer_json(body, self.should_rate_limit, self._options)

    def _read(self, request: bytes) -> PlannedCall:
        """The call of *request*, with its plan; kept if the same message came before."""
        is_short = self._is_short(request)
        has_shape = is_short and not self._options.metadata
        planned = self._shapes.planned(request) if has_shape else None
        if planned is None:
            planned = self._plan(request)
            if has_shape:
                self._shapes.learn(request, planned, self._plan)
        if is_short and self._ready.is_offered_again(request):
            overrides = self._in_force.compiled.policy.overrides
            if not overrides and not planned.debug_tokens and not planned.is_once:  # all expire
                self._ready.put(request, planned, _size_of(request, planned))
        return planned

    def _is_short(self, request: bytes) -> bool:
        return len(request) <= LARGEST_MESSAGE <= self._options.longest_value

    def _plan(self, request: bytes) -> PlannedCall:
        call = read_call(request, self._options)
        compiled, envoy = self._in_force.compiled, self._core.envoy
        revision = compiled.policy.revision
        if envoy is not None and call.domain in envoy.domains:
            lines = self._envoy_lines.lines(envoy, call)
            planned = PlannedCall.of(call, lines, revision, self._options.charge)
            return planned._replace(is_configured=True)
        is_kept = self._is_short(request) and not compiled.policy.overrides
        return PlannedCall.of(
            call, self._rule_lines.lines(compiled, call, is_kept=is_kept), revision
        )

    async def _reply_later(self, planned: PlannedCall) -> bytes:
        try:
            decided = await adrive(decide_call(self._engine, planned.plan))
        except StoreError as error:
            raise CallError(Code.UNAVAILABLE, _NO_STORE) from error
        return self._reply(planned, decided.decisions)

    def _decide_once(self, planned: PlannedCall) -> Effects[bytes]:
        """Decide a call that holds something until its request is over, or reports that."""
        engine, held = self._engine, self._held_calls
        try:
            if planned.end is None:
                verdict = yield from held.reserve(planned.plan.plan)
                reservation = held.reservation(verdict)
                decisions = [decision for _, decision in verdict.pairs]
                return self._reply(planned, decisions) + reservation
            yield from held.settle(planned.end)
            decided = yield from decide_call(engine, planned.plan)
            return self._reply(planned, decided.decisions)
        except StoreError as error:
            raise CallError(Code.UNAVAILABLE, _NO_STORE) from error

    def _reply(self, planned: PlannedCall, decisions: Decisions) -> bytes:
        if planned.is_configured:
            _count_near_limit(planned.plan.parts, decisions)
        reply = self._encoder.reply(planned, decisions)
        if planned.debug_tokens and any(
            is_debugged(self._core, one) for one in planned.debug_tokens
        ):
            reply += self._trace(planned, decisions)
        return reply

    def _trace(self, planned: PlannedCall, decisions: Decisions) -> bytes:
        """The headers that trace the decisions, for a client with a debug token: see
        `responses.debug`. No cache keeps a denial anyway."""
        lines = decision_lines(self._traced(planned, decisions))
        if not is_allowed(planned.plan.parts, decisions):
            lines.remove(NO_STORE)
        return b"".join([messages.header(name.lower(), value) for name, value in lines])

    def _traced(self, planned: PlannedCall, decisions: Decisions) -> Iterator[Traced]:
        for part, decision in zip(planned.plan.parts, decisions, strict=True):
            checks = part.planned.checks  # a limit of 0 has none
            for place, (one, check) in enumerate(zip(decision.limits, checks, strict=False), 1):
                yield traced(
                    part.name if place == 1 else f"{part.name}/{place}",
                    part.planned.rule.mode,
                    one,
                    key=self._core.hash_key(check.key),
                    counter=check.group,
                    cost=check.cost,
                    revision=planned.plan.plan.revision,
                )


def _count_near_limit(parts: Sequence[Part], decisions: Decisions) -> None:
    """Count the units above 80% of a limit, as envoyproxy/ratelimit does."""
    for part, decision in zip(parts, decisions, strict=True):
        if not decision.allowed or part.verb != "take":
            continue
        quota = decision.limit.quota
        near = quota - decision.remaining - quota * _NEAR_PERCENT // 100
        if near > 0:
            _near_limit(part.planned.rule.id).add(min(near, part.planned.cost))


@lru_cache(maxsize=8192)
def _near_limit(rule: str) -> Counter:
    return METRICS.counter(
        "near_limit", "units allowed above 80% of a limit of envoy_config", rule=rule
    )


def _size_of(message: bytes, planned: PlannedCall) -> int:
    """Estimate the bytes of a call that is kept ready; above what CPython allocates."""
    checks = sum([len(part.planned.checks) for part in planned.plan.parts])
    width = 1 if message.isascii() else _WIDEST
    texts = _COPIES * width * len(message)
    return _READY_BYTES + _LINE_BYTES * len(planned.lines) + _CHECK_BYTES * checks + texts
