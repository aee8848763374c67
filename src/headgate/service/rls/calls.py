"""The method `ShouldRateLimit`: a request's bytes to the reply's."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import json_format

from headgate.engine.tracing import traced
from headgate.errors import StoreError
from headgate.responses.debug import NO_STORE, decision_lines
from headgate.service import core as debugging
from headgate.service.grpc.method import CallError, Code
from headgate.service.remembered import LARGEST, Remembered, size_of
from headgate.service.rls import messages
from headgate.service.rls.answer import Answering
from headgate.service.rls.asking import Outage, Question, is_passing
from headgate.service.rls.configured import Configured
from headgate.service.rls.descriptors import Amounts, Asked
from headgate.service.rls.fast_path import ShortWays
from headgate.service.rls.messages import OVER_LIMIT, RateLimitRequest, RateLimitResponse
from headgate.service.rls.noting import Noting, begin
from headgate.service.rls.reading import RlsOptions, read_call
from headgate.service.rls.ruled import Ruled
from headgate.stores.operations import TakeEach

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator, Sequence
    from fractions import Fraction

    from headgate.policy.compiled import CompiledPolicy
    from headgate.policy.envoy_config import EnvoyConfig
    from headgate.responses.debug import Traced
    from headgate.service.core import Core
    from headgate.service.grpc.method import Unary
    from headgate.service.rls.asking import Rounds, Said
    from headgate.service.rls.descriptors import Part
    from headgate.service.rls.fast_path import Answer
    from headgate.stores.base import Store
    from headgate.stores.operations import Operation


# `POST /json`: the same call in the JSON of Protocol Buffers, as envoyproxy/ratelimit has it.
#
# Names are read as they are defined (`hits_addend`) and as JSON spells them (`hitsAddend`), and
# written as JSON spells them. 200 says OK, 429 OVER_LIMIT, 400 that the request makes no sense, and
# 500 that it could not be answered.


_BAD: Final = frozenset({Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED})


async def answer_json(body: bytes, method: Unary, options: RlsOptions) -> tuple[int, bytes]:
    """The status and the body of what *method* answers to *body*."""
    if len(body) > options.most_bytes:
        return 400, _problem(f"the body has {len(body)} bytes; at most {options.most_bytes} count")
    try:
        request = json_format.Parse(body, RateLimitRequest()).SerializeToString()
    except (json_format.ParseError, RecursionError, ValueError) as error:
        return 400, _problem(f"the body is not a RateLimitRequest in JSON: {error}")
    try:
        answer = method(request)
        reply = RateLimitResponse.FromString(answer if isinstance(answer, bytes) else await answer)
    except CallError as error:
        return 400 if error.code in _BAD else 500, _problem(str(error))
    text = json_format.MessageToJson(reply, indent=None)
    return 429 if reply.overall_code == OVER_LIMIT else 200, text.encode()


def _problem(message: str) -> bytes:
    return json.dumps({"message": message}).encode()


# How a call was decided, for the client that brings a token: see `responses.debug`.


def is_debugged(core: Core, asked: Asked) -> bool:
    """Whether the client of a call may hear how it was decided."""
    return any(
        line.debug is not None and debugging.is_debugged(core, line.debug) for line in asked.lines
    )


def traced_fields(core: Core, parts: Sequence[Part], said: Said) -> bytes:
    """The headers that tell it, as fields of the answer. A refusal is kept by nobody anyhow."""
    lines = decision_lines(_traced(core, parts, said))
    if not is_passing(parts, said):
        lines.remove(NO_STORE)
    return b"".join([messages.header(name.lower(), value) for name, value in lines])


def _traced(core: Core, parts: Sequence[Part], said: Said) -> Iterator[Traced]:
    revision = core.rules.in_force.policy.revision
    for part, decision in zip(parts, said, strict=True):
        if decision is None:
            continue
        for place, (one, check) in enumerate(zip(decision.limits, part.checks, strict=False), 1):
            yield traced(
                part.name if place == 1 else f"{part.name}/{place}",
                "shadow" if part.role in ("shadow", "hidden") else "enforce",
                one,
                key=core.hash_key(check.key),
                counter=check.group,
                cost=check.cost,
                revision=revision,
            )


# Rounds of operations with a store: at once where it never waits, else awaited.


def run_now(store: Store, rounds: Rounds) -> None:
    """Go through *rounds* with a store that never waits."""
    try:
        operations = next(rounds)
        while True:
            operations = rounds.send([_reply_now(store, one) for one in operations])
    except StopIteration:
        return


async def run_later(store: Store, rounds: Rounds) -> None:
    """Go through *rounds* with a store that may have to be waited for."""
    try:
        operations = next(rounds)
        while True:
            if len(operations) == 1:
                replies = [await _reply(store, operations[0])]
            else:
                replies = await asyncio.gather(*[_reply(store, one) for one in operations])
            operations = rounds.send(replies)
    except StopIteration:
        return


def _reply_now(store: Store, operation: Operation[Any]) -> Any:
    try:
        return store.run(operation)
    except StoreError as error:
        return error


async def _reply(store: Store, operation: Operation[Any]) -> Any:
    try:
        if isinstance(operation, TakeEach) and len(operation.takes) == 1:
            return (await store.arun(operation.takes[0]),)  # with which a store may borrow
        return await store.arun(operation)
    except StoreError as error:
        return error


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
        self._in_force = core.rules.in_force
        self._options = options
        self._store = core.rules.engine.store
        self._amounts = Amounts(options.reports)
        self._configured = Configured(
            self._amounts, namespace=core.namespace, on_store_failure=options.on_store_failure
        )
        self._ruled = Ruled(self._amounts, self._configured)
        self._outage = Outage(core.rules.engine.fallback)
        self._answering = Answering(core, options)
        self._noting = Noting(core)
        self._ways = ShortWays(core, options, self._outage, self._answering, self._noting)
        self._remembered: Remembered[bytes, Answer] = Remembered()
        self._engine: CompiledPolicy | None = None
        self._envoy: EnvoyConfig | None = None
        self._factor: Fraction | None = None
        self._version = 0

    def should_rate_limit(self, request: bytes) -> bytes | Awaitable[bytes]:
        """The answer to *request*, at once if the store can be asked at once.

        Raises `CallError` for what cannot be answered.
        """
        engine, envoy = self._in_force.compiled, self._core.envoy
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

    def _prepare(self, request: bytes, engine: CompiledPolicy, envoy: EnvoyConfig | None) -> Answer:
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
        if self._store.waits:
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
