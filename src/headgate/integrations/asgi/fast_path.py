"""The quick way through the middleware: one limit for the whole app, counted in this process.

That is what most apps begin with, and it needs nothing but a look at a dict. So it is written out
here: the key, the decision, the headers as bytes, with everything that is the same for all requests
made beforehand. It says the same as the long way, and a property test holds the two together. Who
asks about the request further in finds a passage that fills itself in; and whatever is out of the
ordinary (a refusal, a preflight, a debug token, a header that is there already) goes the long way.
"""

from __future__ import annotations

import inspect
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.engine.plan import Plan
from headgate.engine.verdict import RuleVerdict, Verdict
from headgate.integrations.allowance import key_of
from headgate.integrations.asgi.request import PASSAGE, AsgiRequest
from headgate.integrations.asgi.sending import IN_THE_WAY, Response, refuse
from headgate.integrations.debugging import FIELD
from headgate.integrations.exemptions import EXEMPT_ONES
from headgate.integrations.passage import Entry, Grant, Passage
from headgate.limits import PacedLimit
from headgate.observability.named import DecisionNotes
from headgate.responses import limit_template
from headgate.stores.base import concluded, group_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from headgate.decision import Decision
    from headgate.engine.request import Request
    from headgate.integrations.allowance import KeyOf, Names
    from headgate.integrations.asgi.request import App, Message, Receive, Scope, Send
    from headgate.integrations.gate import Gate


REMEMBERED: Final = 4096
"""How many addresses are remembered as keys."""

DEBUG_FIELD: Final = FIELD.encode("ascii")


class Plain(NamedTuple):
    """A gate that does nothing but count requests under one limit."""

    names: Names
    limit: PacedLimit
    cost: int
    key: KeyOf[Request] | None


def quick_way(gate: Gate, app: App, slowly: App) -> App | None:
    """The quick way to *app* through *gate*; None if there is none. *slowly* is the long way."""
    plain = _plain(gate)
    if plain is None:
        return None
    group = group_name(gate.namespace, plain.names.counter)
    store, limit = gate.engine.store, plain.limit
    if store.waits or store.may_fail:
        return None
    take = store.prepare([(group, limit)]).take

    def hit(key: str, cost: int) -> Decision:
        return concluded(key, limit, take((key,), (cost,))[0])

    return _way(gate, plain, hit, app, slowly)


def _way(  # noqa: C901
    gate: Gate, plain: Plain, hit: Callable[[str, int], Decision], app: App, slowly: App
) -> App:
    known: Mapping[str, str] = {}
    if plain.key is None and gate.believes_nobody:
        known, whose = _addresses(gate)
    else:
        whose = _key(gate, plain.key)
    lines, now_ns = limit_template(plain.names.shown, plain.limit).lines, gate.now_ns
    cost, exemptions = plain.cost, gate.exemptions
    has_exemptions, is_debugging = bool(exemptions), gate.debugging is not None
    new_passage, kind = QuickPassage.__new__, QuickPassage
    note = DecisionNotes(plain.names.shown).note

    async def call(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: C901
        if (
            scope["type"] != "http"
            or scope.get("method") == "OPTIONS"
            or PASSAGE in scope
            or EXEMPT_ONES
            or (is_debugging and _has_token(scope))
            or (has_exemptions and exemptions.covers(AsgiRequest(scope).path))
        ):
            await slowly(scope, receive, send)
            return
        client = scope.get("client")
        key = known.get(client[0]) if client else None
        if key is None:
            found = whose(scope)
            key = found if isinstance(found, str) else await found
        began_ns = perf_counter_ns()
        decision = hit(key, cost)
        is_allowed = note(decision, key, cost, began_ns)
        passage = scope[PASSAGE] = new_passage(kind)
        passage.origin = gate, decision, scope
        if not is_allowed:
            await slow_refusal(scope, send, passage)
            return
        response: Response | None = None

        def sending(message: Message) -> Awaitable[None]:
            nonlocal response
            if response is not None:
                return response.send(message)
            if message["type"] != "http.response.start":
                return send(message)
            headers = message.get("headers", ())
            if type(headers) is not list:
                headers = list(headers)  # which may be read only once
            if passage.origin is not None:
                for line in headers:
                    if line[0].lower() in IN_THE_WAY:
                        break
                else:
                    for line in scope.get("headers", ()):
                        if line[0] == b"origin":
                            break
                    else:
                        ours = lines(decision.remaining, decision.reset_after_ns, now_ns())
                        return send({**message, "headers": headers + ours})
            response = Response(passage, send, AsgiRequest(scope))
            return response.send({**message, "headers": headers})

        try:
            await app(scope, receive, sending)
        except BaseException as error:
            response = response or Response(passage, send, AsgiRequest(scope))
            response.error = error
            raise
        finally:
            if passage.origin is None:  # somebody asked further in, whatever was sent
                await (response or Response(passage, send, AsgiRequest(scope))).finish()

    return call


def _has_token(scope: Scope) -> bool:
    """Whether somebody would hear how a request was decided: there is more to tell then."""
    for line in scope.get("headers", ()):  # noqa: SIM110 (half the time of any())
        if line[0] == DEBUG_FIELD:
            return True
    return False


class QuickPassage(Passage):
    """A passage that is filled in when somebody looks at it: then `origin` is None.

    It is made by `__new__` alone; the first who misses an attribute has it set.
    """

    __slots__ = ("origin",)

    origin: tuple[Gate, Decision, Scope] | None

    def __getattr__(self, name: str) -> Any:
        if self.origin is None:
            raise AttributeError(name)
        gate, decision, scope = self.origin
        self.origin = None
        is_cross_origin = AsgiRequest(scope).header("origin") is not None
        super().__init__(gate, is_watched=True, is_cross_origin=is_cross_origin)
        self.asked.add(gate)
        grant = _grant(gate, decision)
        if decision.allowed:
            self.granted(grant)
        else:
            self.refused(grant.verdict)
        return getattr(self, name)


async def slow_refusal(scope: Scope, send: Send, passage: Passage) -> None:
    """Refuse a request, which may take its time."""
    request = AsgiRequest(scope)
    await refuse(send, request, passage.gate.refusal(passage, request.header("accept")))


def _plain(gate: Gate) -> Plain | None:
    allowance = gate.allowance
    if allowance is None or gate.rules is not None or gate.exempt_when is not None:
        return None
    if not gate.tells_plainly or allowance.charge_when is not None or gate.shedder is not None:
        return None
    if allowance.mode != "enforce" or allowance.headers != "on":
        return None
    if not isinstance(allowance.cost, int) or not allowance.cost:
        return None
    match allowance.fixed:
        case (PacedLimit() as limit,):
            return Plain(allowance.own_names, limit, allowance.cost, allowance.key)
    return None


def _key(gate: Gate, function: KeyOf[Request] | None) -> Callable[[Scope], str | Awaitable[str]]:
    """What finds the key of a request by a function."""
    asked = gate.default_key if function is None else function

    def key(scope: Scope) -> str | Awaitable[str]:
        request = AsgiRequest(scope)
        value = asked(request)
        if not isinstance(value, str) and inspect.isawaitable(value):
            return later(value, request)
        return key_of(value, lambda: gate.address(request))

    async def later(value: Awaitable[object], request: Request) -> str:
        return key_of(await value, lambda: gate.address(request))

    return key


def _addresses(gate: Gate) -> tuple[Mapping[str, str], Callable[[Scope], str | Awaitable[str]]]:
    """The keys of the addresses of late, and what finds that of a request and adds it to them."""
    known: dict[str, str] = {}

    def key(scope: Scope) -> str:
        peer = AsgiRequest(scope).peer
        if len(known) >= REMEMBERED:
            known.clear()
        found = known[peer] = key_of(gate.address(AsgiRequest(scope)), str)
        return found

    return known, key


def _grant(gate: Gate, decision: Decision) -> Grant:
    """The grant, or refusal, that *decision* of the quick way stands for."""
    plain = _plain(gate)
    allowance = gate.allowance
    assert plain is not None and allowance is not None  # noqa: S101, PT018 (mypy)
    limits = (plain.limit,)
    one = allowance.plan(plain.names, decision.key, plain.cost, limits, gate.namespace)
    plan = Plan(0, (one,))
    said = RuleVerdict(one.rule, one.key, one.cost, decision)
    return Grant(gate, Entry(plan), Verdict(decision.allowed, 0, (said,), plan=plan))
