"""A caller: all counters that belong to it, under every rule, with recent traffic."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from headgate.policy.fields import MAX_KEY
from headgate.policy.identity.identifier import UNKNOWN
from headgate.policy.model import GLOBAL
from headgate.service.admin.keys import (
    Counter,
    clear_key,
    counter_data,
    has_shape,
    override_of,
    request_of,
)
from headgate.service.admin.operations import ANY, Operation
from headgate.service.http.check_request import invalid
from headgate.service.http.replies import Flaw, Reply, json_reply
from headgate.service.http.schemas import FLAG, TEXT, a_list, a_map, an_object, of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headgate.service.admin.call import Call

    Busy = Mapping[tuple[str | None, str], tuple[float, float]]

Data = dict[str, Any]
MOST: Final = 200
"""The most counters in one reply."""

_CALLER: Final = an_object(
    *("key", "identity", "tier"),
    key=of("string", "The key of its counters.", minLength=1, maxLength=MAX_KEY),
    identity={**a_map(TEXT), "description": "Instead of a key: such as user_id, api_key or ip."},
    tier=of("string", "With a key: the tier of the caller, if limits differ by tier."),
)
_COUNTERS: Final = an_object(counters=a_list(ANY), more=FLAG)


@Operation("POST /callers:lookup", answer=_COUNTERS, body=_CALLER)
async def look_up_caller(call: Call) -> Reply:
    """List the counters of a caller under all rules, and its recent traffic."""
    given = [name for name in ("key", "identity") if name in call.body]
    if len(given) != 1:
        call.flaws.append(Flaw("key", f"found {len(given)} of key, identity", "expected one"))
    call.check()
    if "key" in call.body:
        every = _with_key(call, await clear_key(call, call.body["key"]))
    else:
        every = _of_identity(call, call.body["identity"])
    found = [*islice(every, MOST + 1)]
    if not found:
        hint = "such as ip=203.0.113.7; `key_by` of the rules says which parts keys have"
        raise invalid([Flaw("key", "no rule counts this caller", f"expected a key {hint}")])
    busy = await call.api.live.busy_keys()
    rows = await asyncio.gather(*(_row(call, one, busy) for one in found[:MOST]))
    return json_reply({"counters": rows, "more": len(found) > MOST})


def _with_key(call: Call, key: str) -> Iterator[Counter]:
    """The counters with *key*, and those that all callers share."""
    policy, tier = call.api.core.rules.in_force.policy, call.body.get("tier")
    for rule in policy.rules:
        own = GLOBAL if rule.key_by == (GLOBAL,) else key
        limits = rule.limits_for(tier) or next(iter(rule.limits.values()), ())
        if limits and rule.fair is None and has_shape(own, rule, policy.identity):
            yield Counter(rule, own, limits, override_of(call, rule.id, own), None)


def _of_identity(call: Call, values: Mapping[str, Any]) -> Iterator[Counter]:
    """The counters of the caller with these *values*, as far as they name it."""
    engine = call.api.core.rules.in_force.compiled
    request = request_of(dict(values), engine.policy.identity)
    found = engine.identifier.find(request)
    for rule in engine.policy.rules:
        limits = rule.limits_for(found["tier"])
        if not limits or rule.fair is not None or _OF_REQUESTS & {*rule.key_by}:
            continue
        key = engine.identifier.key(rule, request, found)
        if key is not None and not any(part.endswith(_NOBODY) for part in key.split("&")):
            yield Counter(rule, key, limits, override_of(call, rule.id, key), None)


_OF_REQUESTS: Final = frozenset(("endpoint", "method", "host"))
"""Parts of keys that a caller alone does not have."""
_NOBODY: Final = f"ip={UNKNOWN}"


async def _row(call: Call, one: Counter, busy: Busy) -> Data:
    per_second, denied = busy.get((one.rule.id, one.key), (0.0, 0.0))
    shown = call.api.core.show_key(one.key)
    is_hidden = shown == call.body.get("key")
    return {
        **await counter_data(call, one),
        "key": shown if is_hidden else one.key,
        "shown_key": shown,
        "is_shared": one.key == GLOBAL or one.key.endswith("!shared"),
        "per_second": round(per_second, 1),
        "denied_per_second": round(denied, 1),
    }
