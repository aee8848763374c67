"""Requests that hold something until they are over: amounts that are estimates, and slots.

Headgate's own gateway reports the end of such a request, with the usage of its response if it is a
call of a language model. No process keeps a table in between: the reply to the first call has the
id of a reservation as dynamic metadata (see `receipts`), which Envoy sends back at the end, once.
Any worker settles it. If no report comes, as the gateway was killed, holds and slots expire.

Envoy allowed a request without a reservation, as the service did not answer: its usage is charged
at its end.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.struct_pb2 import Struct

from headgate.engine.recorder import record_settled
from headgate.errors import StoreError
from headgate.llm.amounts import settled
from headgate.llm.attributes import MODEL
from headgate.llm.request import MOST_TOKENS, request_of_fields
from headgate.llm.usage import Usage
from headgate.policy.envoy_config.attributes import (
    BYTES,
    COUNTS,
    EXTRACTION,
    RESERVATION,
    STATUS,
    UNREAD,
)
from headgate.runtime.heartbeat import new_name
from headgate.service.receipts import Receipt, Receipts
from headgate.service.rls import messages
from headgate.service.rls.descriptors import RequestEnd
from headgate.service.settlement import Settlements
from headgate.units import DAY, MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.engine.plan import CompiledRule, Plan
    from headgate.engine.request import Request
    from headgate.engine.verdict import Verdict
    from headgate.llm.request import ModelRequest
    from headgate.runtime.effects import Effects
    from headgate.service.core import Core

LONGEST: Final = 65_536
"""The longest id of a reservation: there is one rule in it for each that holds something."""

_NUMBER: Final = re.compile("[0-9]{1,18}")
_COMPLETE: Final = "1"
_EMBEDDINGS: Final = re.compile(r"[^?]*/embeddings/*(?:\?.*)?", re.DOTALL)


class HeldCalls:
    """Reserves and settles requests with the rules and the store of *core*."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._engine = core.rules.engine
        self._receipts = Receipts(core.secret, core.namespace, LONGEST)
        self._settlements = Settlements(core, DAY // SECOND)

    def reserve(self, plan: Plan) -> Effects[Verdict]:
        """Decide a request by *plan*, and hold what is to be settled at its end."""
        holds = [one.rule.hold_ns or 0 for one in plan.rules if one.rule.id in plan.open]
        return self._engine.reserve(plan, plan.lease or new_name(), max(holds, default=MINUTE))

    def reservation(self, verdict: Verdict) -> bytes:
        """The dynamic metadata for a reply with *verdict*, as a field of it; empty if nothing is
        to be settled."""
        is_held = verdict.held is not None or verdict.slots is not None
        if not verdict.allowed or not (is_held or verdict.local_slots is not None):
            return b""
        receipt = Receipt.of(verdict, self._core.clock() + DAY)
        self._settlements.granted(receipt)
        struct = Struct()
        struct.fields[RESERVATION].string_value = self._receipts.id_of(receipt) or ""
        return messages.metadata(struct.SerializeToString(deterministic=True))

    def settle(self, end: RequestEnd) -> Effects[Any]:
        """Charge what the request of *end* has used, and release its slots.

        If the store is gone, its holds and slots expire, and a usage without a reservation is
        charged by the failure policy of each rule.
        """
        if end.reservation is None:
            yield from self._charge(end)
            return
        receipt = self._receipts.receipt_of(end.reservation.encode("utf-8", "replace"))
        if receipt is None:  # from before the secret was changed
            return
        compiled = self._core.rules.in_force.compiled
        rules = {one.id: compiled.rule_named(one.id) for one in receipt.rules}
        amounts = {one.id: _cost(end, rules[one.id], one.cost) for one in receipt.rules}
        try:
            was_open = yield from self._settlements.settle(receipt, amounts)
        except StoreError:
            return
        if was_open:
            found = [rule for rule in rules.values() if rule is not None]
            record_settled([(rule, amounts[rule.id]) for rule in found])

    def _charge(self, end: RequestEnd) -> Effects[None]:
        """Charge the usage of a request that nothing was held for."""
        if end.usage is None:
            return
        plan = self._core.rules.in_force.compiled.plan(end.request)
        rules = [one for one in plan.deciding if one.rule.id in plan.open]
        yield from self._engine.charge([(one, _cost(end, one.rule, one.cost)) for one in rules])


def _cost(end: RequestEnd, rule: CompiledRule | None, estimate: int) -> int:
    """The cost of a request at its *end* under *rule*, or by one that is no longer in force."""
    cost = None
    if end.usage is not None and rule is not None and rule.final_cost is not None:
        cost = rule.final_cost(end.usage, end.request.attributes.get(MODEL))
    elif end.usage is not None:
        return estimate
    return settled(cost, estimate, end.status, is_final=end.is_final)


# What the gateway has read in bodies, all of it text.


def read_request(path: str, fields: Mapping[str, str]) -> ModelRequest:
    """The call of a language model to *path* with *fields* of its body."""
    size = _number(fields.get(BYTES)) or 0
    return request_of_fields(path, fields, size, is_readable=UNREAD not in fields)


def read_end(request: Request, fields: Mapping[str, str], reservation: str | None) -> RequestEnd:
    """The end of *request*, by the *fields* of its response.

    A usage is final if Envoy has read all of it, and knows input and output. (Embeddings have no
    output.)
    """
    counts = [_number(fields.get(name)) for name in COUNTS]
    size, output, cached, written = (min(one or 0, MOST_TOKENS) for one in counts)
    usage = None
    if counts[0] is not None or counts[1] is not None:
        cached = min(cached, size)
        usage = Usage(size, output, cached, min(written, size - cached))
    is_embedding = _EMBEDDINGS.fullmatch(request.path) is not None
    knows_all = counts[0] is not None and (counts[1] is not None or is_embedding)
    is_final = knows_all and fields.get(EXTRACTION) == _COMPLETE
    return RequestEnd(request, reservation, usage, is_final, _number(fields.get(STATUS)) or None)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None
