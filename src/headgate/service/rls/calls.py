"""The method `ShouldRateLimit`: from the bytes of a request to those of the reply."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from google.protobuf import json_format

from headgate.engine.calls import decide_call, decide_call_now, is_allowed
from headgate.engine.tracing import traced
from headgate.errors import StoreError
from headgate.responses.debug import NO_STORE, decision_lines
from headgate.runtime.bounded_cache import BoundedCache
from headgate.runtime.drivers import adrive, drive
from headgate.service.core import is_debugged
from headgate.service.grpc.method import CallError, Code
from headgate.service.rls import messages
from headgate.service.rls.answer import ReplyEncoder
from headgate.service.rls.configured import Configured
from headgate.service.rls.descriptors import Amounts, Asked
from headgate.service.rls.messages import OVER_LIMIT, RateLimitRequest, RateLimitResponse
from headgate.service.rls.reading import RlsOptions, read_call
from headgate.service.rls.ruled import Ruled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from headgate.responses.debug import Traced
    from headgate.service.core import Core
    from headgate.service.grpc.method import Unary
    from headgate.service.rls.answer import Decisions


# `POST /json`: the same call in the JSON of Protocol Buffers, as envoyproxy/ratelimit has it.
#
# Names are read as they are defined (`hits_addend`) and as JSON spells them (`hitsAddend`), and
# written as JSON spells them. The status is 200 for OK, 429 for OVER_LIMIT, 400 for an invalid
# request, and 500 for an error.


_INVALID: Final = frozenset({Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED})


async def answer_json(body: bytes, method: Unary, options: RlsOptions) -> tuple[int, bytes]:
    """The status and the body of the reply of *method* to *body*."""
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
        return 400 if error.code in _INVALID else 500, _problem(str(error))
    text = json_format.MessageToJson(reply, indent=None)
    return 429 if reply.overall_code == OVER_LIMIT else 200, text.encode()


def _problem(message: str) -> bytes:
    return json.dumps({"message": message}).encode()


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
        self._configured = Configured(
            self._amounts, namespace=core.namespace, on_store_failure=options.on_store_failure
        )
        self._ruled = Ruled(self._amounts, self._configured)
        self._encoder = ReplyEncoder(core, options)
        # By message: to read one and find its plan takes six times as long as to decide it.
        self._ready: BoundedCache[Asked] = BoundedCache(MAX_BYTES)
        self._basis: tuple[object, ...] = ()

    def should_rate_limit(self, request: bytes) -> bytes | Awaitable[bytes]:
        """The reply to *request*, at once if the store does not have to be waited for.

        Raises `CallError` for a call that cannot be answered.
        """
        in_force, version = self._in_force, self._amounts.version
        basis = in_force.compiled, self._core.envoy, in_force.scale.factor, version
        if basis != self._basis:
            self._basis, self._ready = basis, BoundedCache(MAX_BYTES)
        known = self._ready.get(request)
        asked = self._read(request) if known is None else known[0]
        try:
            decisions = decide_call_now(self._engine, asked.plan)
            if decisions is None:
                if self._engine.store.waits:
                    return self._reply_later(asked)
                decisions = drive(decide_call(self._engine, asked.plan))
        except StoreError as error:
            raise CallError(Code.UNAVAILABLE, _NO_STORE) from error
        return self._reply(asked, decisions)

    async def json(self, body: bytes) -> tuple[int, bytes]:
        """The status and the body of the reply to `POST /json`."""
        return await answer_json(body, self.should_rate_limit, self._options)

    def _read(self, request: bytes) -> Asked:
        """The call of *request*, with its plan; kept if the same message came before."""
        call = read_call(request, self._options)
        compiled, envoy = self._in_force.compiled, self._core.envoy
        revision = compiled.policy.revision
        if envoy is not None and call.domain in envoy.domains:
            lines = self._configured.lines(envoy, call)
            asked = Asked.of(call, lines, revision, self._options.charge)
        else:
            asked = Asked.of(call, self._ruled.lines(compiled, call), revision)
        is_lasting = not (compiled.policy.overrides or asked.debug_tokens)  # which expire
        if is_lasting and len(request) <= LARGEST_MESSAGE and self._ready.is_offered_again(request):
            self._ready.put(request, asked, _size_of(request, asked))
        return asked

    async def _reply_later(self, asked: Asked) -> bytes:
        try:
            decisions = await adrive(decide_call(self._engine, asked.plan))
        except StoreError as error:
            raise CallError(Code.UNAVAILABLE, _NO_STORE) from error
        return self._reply(asked, decisions)

    def _reply(self, asked: Asked, decisions: Decisions) -> bytes:
        reply = self._encoder.reply(asked, decisions)
        if asked.debug_tokens and any(is_debugged(self._core, one) for one in asked.debug_tokens):
            reply += self._trace(asked, decisions)
        return reply

    def _trace(self, asked: Asked, decisions: Decisions) -> bytes:
        """The headers that trace the decisions, for a client with a debug token: see
        `responses.debug`. No cache keeps a denial anyway."""
        lines = decision_lines(self._traced(asked, decisions))
        if not is_allowed(asked.plan.parts, decisions):
            lines.remove(NO_STORE)
        return b"".join([messages.header(name.lower(), value) for name, value in lines])

    def _traced(self, asked: Asked, decisions: Decisions) -> Iterator[Traced]:
        for part, decision in zip(asked.plan.parts, decisions, strict=True):
            checks = part.planned.checks  # a limit of 0 has none
            for place, (one, check) in enumerate(zip(decision.limits, checks, strict=False), 1):
                yield traced(
                    part.name if place == 1 else f"{part.name}/{place}",
                    part.planned.rule.mode,
                    one,
                    key=self._core.hash_key(check.key),
                    counter=check.group,
                    cost=check.cost,
                    revision=asked.plan.plan.revision,
                )


def _size_of(message: bytes, asked: Asked) -> int:
    """Estimate the bytes of a call that is kept ready; above what CPython allocates."""
    checks = sum([len(part.planned.checks) for part in asked.plan.parts])
    width = 1 if message.isascii() else _WIDEST
    texts = _COPIES * width * len(message)
    return _READY_BYTES + _LINE_BYTES * len(asked.lines) + _CHECK_BYTES * checks + texts
