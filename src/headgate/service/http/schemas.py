"""JSON Schema of the bodies of responses, and the words to write it in.

The schema of a request is in `check_request`, beside what validates it.
"""

from __future__ import annotations

from typing import Any, Final

from headgate.responses.bodies import BLOCKED, BUSY, EXCEEDED, OUTAGE
from headgate.stores.base import LARGEST_AMOUNT

Schema = dict[str, Any]


def of(kind: str | list[str], description: str = "", /, **keywords: Any) -> Schema:
    """A value of a type of JSON Schema; *keywords* are of JSON Schema too."""
    found = {"type": kind, **keywords}
    return {**found, "description": description} if description else found


def an_object(*optional: str, **fields: Schema) -> Schema:
    """An object with these *fields* and no others; all but the *optional* ones are required."""
    required = [name for name in fields if name not in optional]
    schema = of("object", additionalProperties=False, properties=fields)
    return {**schema, "required": required} if required else schema


def a_list(items: Schema) -> Schema:
    return of("array", items=items)


def a_map(values: Schema) -> Schema:
    """An object with any names."""
    return of("object", additionalProperties=values)


def ref(name: str) -> Schema:
    """The schema *name* of `components.schemas`."""
    return {"$ref": f"#/components/schemas/{name}"}


TEXT: Final = of("string")
FLAG: Final = of("boolean")
INTEGER: Final = of("integer")
WHOLE: Final = of("integer", minimum=0)
AMOUNT: Final = of("integer", minimum=0, maximum=LARGEST_AMOUNT)

_ESTIMATE: Final = {
    "const": True,
    "description": "The wait is an estimate, as for a slot; absent if it is exact.",
}
_TIGHTEST: Final = "The id of the tightest rule; null if there is none."
_LEFT: Final = "The largest cost that would be allowed now."
_WAIT: Final = "Seconds, rounded up; null if waiting does not help."
_PLACE: Final = "Time to wait in the queue; absent if the request may proceed now."
_DECISION: Final = {
    "allowed": FLAG,
    "limit": of(["string", "null"], _TIGHTEST),
    "quota": of(["integer", "null"], "The quota of the tightest limit."),
    "remaining": of(["integer", "null"], _LEFT),
    "retry_after": of(["integer", "null"], _WAIT),
    "retry_after_ms": of(["integer", "null"], "The same in milliseconds."),
    "is_estimate": _ESTIMATE,
    "delay_ms": of("integer", _PLACE, minimum=1),
    "reset_after": of("number", "Seconds until all limits are unused again."),
    "source": of(["string", "null"], "The origin of the decision: `store`, or a fallback."),
    "revision": of("integer", "The revision of the policy in force."),
    "rules": a_list(ref("RuleDecision")),
}
_NOT_ALWAYS: Final = ("is_estimate", "delay_ms")
_DENIED: Final = {
    "error": {"enum": [one[0] for one in (EXCEEDED, OUTAGE, BUSY, BLOCKED)]},
    "message": of("string", "A message for people."),
}
_HELD: Final = {"id": TEXT, "expires": of("number", "Time of expiry, epoch seconds.")}
_LIMIT: Final = an_object(
    *("window", "remaining", "reset", "reset_after", "endpoints", "methods"),
    name=of("string", "The id of the rule; for its second limit `id/2`."),
    limit=TEXT,
    quota=INTEGER,
    window=of("integer", "Seconds."),
    remaining=INTEGER,
    reset=of("integer", "Time of the full reset, epoch seconds."),
    reset_after=of("number"),
    endpoints=a_list(TEXT),
    methods=a_list(TEXT),
)
_INVALID_FIELD: Final = an_object(
    "hint",
    field=of("string", "The field; empty for the whole body."),
    message=of("string", "The value that was found."),
    hint=of("string", "The value that was expected."),
)

RESPONSES: Final[dict[str, Schema]] = {
    "RuleDecision": an_object(
        "is_estimate",
        id=TEXT,
        mode={"enum": ["enforce", "shadow"]},
        limit=of("string", "The tightest limit, in the notation of rules."),
        quota=WHOLE,
        cost=AMOUNT,
        allowed=FLAG,
        remaining=WHOLE,
        retry_after_ms=of(["integer", "null"], "0 if allowed; null if the cost can never fit."),
        is_estimate=_ESTIMATE,
        reset_after=of("number", minimum=0),
        source=TEXT,
    ),
    "Decision": an_object(*_NOT_ALWAYS, **_DECISION),
    "DeniedDecision": an_object(*_NOT_ALWAYS, **_DECISION, **_DENIED),
    "Refusal": an_object(
        *("limit", "retry_after", "retry_after_ms"),
        **_DENIED,
        limit=of("string", "The id of the rule that denied the request."),
        retry_after=INTEGER,
        retry_after_ms=INTEGER,
    ),
    "Reservation": an_object(*_NOT_ALWAYS, **_HELD, **_DECISION),
    "Settlement": an_object(charged=a_map(AMOUNT)),
    "Standing": an_object(limits=a_list(_LIMIT)),
    "Health": an_object("reasons", status=TEXT, reasons=a_list(TEXT)),
    "Problem": an_object(
        "errors",
        type=TEXT,
        title=TEXT,
        status=INTEGER,
        detail=TEXT,
        errors=a_list(_INVALID_FIELD),
    ),
}
"""The schemas of bodies of responses, by name."""
