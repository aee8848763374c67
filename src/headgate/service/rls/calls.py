"""The method `ShouldRateLimit`: a request's bytes to the reply's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.service.remembered import LARGEST, Remembered, size_of
from headgate.service.rls.amounts import Amounts
from headgate.service.rls.answering import Answering
from headgate.service.rls.asked import Asked
from headgate.service.rls.asking import Question, is_passing
from headgate.service.rls.configured import Configured
from headgate.service.rls.debugging import is_debugged, traced_fields
from headgate.service.rls.json_text import answer_json
from headgate.service.rls.noting import Noting, begin
from headgate.service.rls.options import RlsOptions
from headgate.service.rls.outage import Outage
from headgate.service.rls.reading import read_call
from headgate.service.rls.ruled import Ruled
from headgate.service.rls.running import run_later, run_now
from headgate.service.rls.ways import ShortWays

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from fractions import Fraction

    from headgate.engine import Engine
    from headgate.rules.envoy import EnvoyConfig
    from headgate.service.core import Core
    from headgate.service.rls.steps import Said
    from headgate.service.rls.ways import Answer

_ENTRY_BYTES: Final = 2_000
"""What an answer that is ready takes."""

_LINE_BYTES: Final = 600
"""What it takes for each descriptor."""


class RateLimitCalls:
    """Envoy's rate limit service on the rules and the store of *core*; for one event loop.

    A domain of envoyproxy/ratelimit's configuration, where there is one, is decided by that; every
    other by the rules.
    """

    def __init__(self, core: Core, options: RlsOptions | None = None) -> None:
        options = options or RlsOptions()
        self._core = core
        self._in_force = core.engine.in_force
        self._options = options
        self._store = core.engine.runner.store
        self._amounts = Amounts(options.reports)
        self._configured = Configured(
            self._amounts, namespace=core.namespace, on_store_failure=options.on_store_failure
        )
        self._ruled = Ruled(self._amounts, self._configured)
        self._outage = Outage(core.engine.runner.fallback)
        self._answering = Answering(core, options)
        self._noting = Noting(core)
        self._ways = ShortWays(core, options, self._outage, self._answering, self._noting)
        self._remembered: Remembered[bytes, Answer] = Remembered()
        self._engine: Engine | None = None
        self._envoy: EnvoyConfig | None = None
        self._factor: Fraction | None = None
        self._version = 0

    def should_rate_limit(self, request: bytes) -> bytes | Awaitable[bytes]:
        """The answer to *request*, at once if the store can be asked at once.

        Raises `CallError` for what cannot be answered.
        """
        engine, envoy = self._in_force.engine, self._core.envoy
        is_as_before = engine is self._engine and envoy is self._envoy
        factor = self._in_force.scale.factor  # which limits are multiplied by under pressure
        is_as_before = is_as_before and factor is self._factor
        if not is_as_before or self._amounts.version != self._version:
            self._engine, self._envoy, self._factor = engine, envoy, factor
            self._version = self._amounts.version
            self._remembered.clear()
            self._ways.clear()
        answer = self._remembered.get(request)
        if answer is None:
            answer = self._prepare(request, engine, envoy)
        return answer()

    async def json(self, body: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer to `POST /json`."""
        return await answer_json(body, self.should_rate_limit, self._options)

    def _prepare(self, request: bytes, engine: Engine, envoy: EnvoyConfig | None) -> Answer:
        call = read_call(request, self._options)
        if envoy is not None and call.domain in envoy.domains:
            asked = Asked.of(call, self._configured.lines(envoy, call), self._options.charge)
        else:
            asked = Asked.of(call, self._ruled.lines(engine, call))
        if is_debugged(self._core, asked):  # which lasts for a while
            return lambda: self._answer_debugged(Question(asked))
        answer = self._answer_to(asked)
        if len(request) <= LARGEST and not engine.policy.overrides:  # those end some time
            checks = sum([len(part.checks) for part in asked.parts])
            base = _ENTRY_BYTES + _LINE_BYTES * len(asked.lines)
            size = size_of(request, checks=checks, base=base)
            self._remembered.keep(request, answer, size)
        return answer

    def _answer_to(self, asked: Asked) -> Answer:
        if not asked.parts:
            return self._noting.unlimited(asked, self._answering.answer(asked, []))
        quick = self._ways.answer(asked)
        if quick is not None:
            return quick
        question = Question(asked)
        if self._store.may_wait:
            return lambda: self._answer_later(question)
        return lambda: self._answer_now(question)

    def _answer_now(self, question: Question) -> bytes:
        said: Said = []
        began_ns = begin()
        run_now(self._store, question.rounds(said, self._outage))
        return self._answered(question.asked, said, began_ns)

    async def _answer_later(self, question: Question) -> bytes:
        said: Said = []
        began_ns = begin()
        await run_later(self._store, question.rounds(said, self._outage))
        return self._answered(question.asked, said, began_ns)

    async def _answer_debugged(self, question: Question) -> bytes:
        said: Said = []
        began_ns = begin()
        await run_later(self._store, question.rounds(said, self._outage))
        answer = self._answered(question.asked, said, began_ns)
        return answer + traced_fields(self._core, question.asked.parts, said)

    def _answered(self, asked: Asked, said: Said, began_ns: int) -> bytes:
        self._noting.all(asked.parts, said, began_ns, passes=is_passing(asked.parts, said))
        return self._answering.answer(asked, said)
