"""The method `ShouldRateLimit`: a request's bytes to the reply's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from google.protobuf import json_format

from headgate.engine.calls import decide_call, decide_call_now, is_allowed
from headgate.engine.tracing import traced
from headgate.errors import StoreError
from headgate.responses.debug import NO_STORE, decision_lines
from headgate.runtime.bounded_cache import BoundedCache
from headgate.runtime.drivers import adrive, drive
from headgate.service import core as debugging
from headgate.service.grpc.method import CallError, Code
from headgate.service.rls import messages
from headgate.service.rls.answer import Answering
from headgate.service.rls.configured import Configured
from headgate.service.rls.descriptors import Amounts, Asked
from headgate.service.rls.messages import OVER_LIMIT, RateLimitRequest, RateLimitResponse
from headgate.service.rls.reading import RlsOptions, read_call
from headgate.service.rls.ruled import Ruled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator
    from fractions import Fraction

    from headgate.policy.compiled import CompiledPolicy
    from headgate.policy.envoy_config import EnvoyConfig
    from headgate.responses.debug import Traced
    from headgate.service.core import Core
    from headgate.service.grpc.method import Unary
    from headgate.service.rls.answer import Allowed, Said


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
    """True if the client of a call may read how it was decided."""
    for line in asked.lines:  # a generator takes longer than the rest of it
        if line.debug is not None and debugging.is_debugged(core, line.debug):
            return True
    return False


def traced_fields(core: Core, asked: Asked, said: Said) -> bytes:
    """The headers that tell it, as fields of the answer. A refusal is kept by nobody anyhow."""
    lines = decision_lines(_traced(core, asked, said))
    if not is_allowed(asked.plan.parts, said):
        lines.remove(NO_STORE)
    return b"".join([messages.header(name.lower(), value) for name, value in lines])


def _traced(core: Core, asked: Asked, said: Said) -> Iterator[Traced]:
    for part, decision in zip(asked.plan.parts, said, strict=True):
        checks = part.planned.checks  # none of a limit of 0
        for place, (one, check) in enumerate(zip(decision.limits, checks, strict=False), 1):
            yield traced(
                part.name if place == 1 else f"{part.name}/{place}",
                part.planned.rule.mode,
                one,
                key=core.hash_key(check.key),
                counter=check.group,
                cost=check.cost,
                revision=asked.plan.plan.revision,
            )


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

_NO_STORE: Final = "the store of the counters could not be asked"


class _Ready(NamedTuple):
    """A call, ready to be decided, and its answer if it is allowed."""

    asked: Asked
    allowed: Allowed | None
    is_debugged: bool = False


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
        self._engine = core.rules.engine
        self._amounts = Amounts(options.reports)
        self._configured = Configured(
            self._amounts, namespace=core.namespace, on_store_failure=options.on_store_failure
        )
        self._ruled = Ruled(self._amounts, self._configured)
        self._answering = Answering(core, options)
        # By message: to read one and find its plan takes six times as long as to decide it.
        self._ready: BoundedCache[_Ready] = BoundedCache(MAX_BYTES)
        self._compiled: CompiledPolicy | None = None
        self._envoy: EnvoyConfig | None = None
        self._factor: Fraction | None = None
        self._version = 0

    def should_rate_limit(self, request: bytes) -> bytes | Awaitable[bytes]:
        """The answer to *request*, at once if the store can be asked at once.

        Raises `CallError` for what cannot be answered.
        """
        compiled, envoy = self._in_force.compiled, self._core.envoy
        is_as_before = compiled is self._compiled and envoy is self._envoy
        factor = self._in_force.scale.factor  # which limits are multiplied by under pressure
        is_as_before = is_as_before and factor is self._factor
        if not is_as_before or self._amounts.version != self._version:
            self._compiled, self._envoy, self._factor = compiled, envoy, factor
            self._version = self._amounts.version
            self._ready = BoundedCache(MAX_BYTES)
            self._answering.clear()
        known = self._ready.get(request)
        ready = self._prepare(request, compiled, envoy) if known is None else known[0]
        asked, allowed, is_debugged = ready
        try:
            said = decide_call_now(self._engine, asked.plan)
            if said is None:
                if self._engine.store.waits:
                    return self._answer_later(ready)
                said = drive(decide_call(self._engine, asked.plan))
        except StoreError as error:
            raise CallError(Code.UNAVAILABLE, _NO_STORE) from error
        answer = self._answering.answer(asked, said, allowed)
        return answer + traced_fields(self._core, asked, said) if is_debugged else answer

    async def json(self, body: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer to `POST /json`."""
        return await answer_json(body, self.should_rate_limit, self._options)

    def _prepare(
        self, request: bytes, compiled: CompiledPolicy, envoy: EnvoyConfig | None
    ) -> _Ready:
        call, revision = read_call(request, self._options), compiled.policy.revision
        if envoy is not None and call.domain in envoy.domains:
            lines = self._configured.lines(envoy, call)
            asked = Asked.of(call, lines, revision, self._options.charge)
        else:
            asked = Asked.of(call, self._ruled.lines(compiled, call), revision)
        if is_debugged(self._core, asked):  # which lasts for a while
            return _Ready(asked, None, is_debugged=True)
        ready = _Ready(asked, self._answering.prepared(asked))
        is_lasting = not compiled.policy.overrides  # which end some time
        if is_lasting and len(request) <= LARGEST_MESSAGE and self._ready.is_offered_again(request):
            self._ready.put(request, ready, _size_of(request, asked))
        return ready

    async def _answer_later(self, ready: _Ready) -> bytes:
        asked, allowed, is_debugged = ready
        try:
            said = await adrive(decide_call(self._engine, asked.plan))
        except StoreError as error:
            raise CallError(Code.UNAVAILABLE, _NO_STORE) from error
        answer = self._answering.answer(asked, said, allowed)
        return answer + traced_fields(self._core, asked, said) if is_debugged else answer


def _size_of(message: bytes, asked: Asked) -> int:
    """Estimate the bytes of a call that is kept ready; above what CPython allocates."""
    checks = sum([len(part.planned.checks) for part in asked.plan.parts])
    width = 1 if message.isascii() else _WIDEST
    texts = _COPIES * width * len(message)
    return _READY_BYTES + _LINE_BYTES * len(asked.lines) + _CHECK_BYTES * checks + texts
