"""The bodies of requests and responses, declared once: the OpenAPI document is derived from them.

A field is required unless it is `NotRequired`. An `Annotated` field has a description, and
`Keywords` of JSON Schema if its type alone does not say everything.
"""

from __future__ import annotations

from types import NoneType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from headgate.responses.bodies import BLOCKED, BUSY, EXCEEDED, OUTAGE
from headgate.stores.base import LARGEST_AMOUNT

Schema = dict[str, Any]

LONGEST_METHOD: Final = 64
LONGEST_PATH: Final = 8_192


class Keywords:
    """JSON Schema keywords of a field."""

    def __init__(self, **words: Any) -> None:
        self.words = words


Whole = Annotated[int, Keywords(minimum=0)]
Amount = Annotated[int, Keywords(minimum=0, maximum=LARGEST_AMOUNT)]
Cost = Amount | dict[str, Amount]
Method = Annotated[str, Keywords(minLength=1, maxLength=LONGEST_METHOD, default="GET")]
Path = Annotated[
    str,
    "As received, not decoded. A query is ignored.",
    Keywords(pattern="^[/*]", maxLength=LONGEST_PATH),
]
Pair = Annotated[list[str], Keywords(minItems=2, maxItems=2)]
Estimate = Annotated[
    Literal[True], "The wait is an estimate, as for a slot; absent if it is exact."
]


class CallerRequest(TypedDict):
    """A caller, and as far as known its request."""

    method: NotRequired[Method]
    path: NotRequired[Path]
    host: NotRequired[Annotated[str, "Default: the Host header."]]
    headers: NotRequired[
        Annotated[dict[str, str | list[str]] | list[Pair], "Names and values, or a list of pairs."]
    ]
    ip: NotRequired[Annotated[str, "The peer address of the request: a client's or a proxy's."]]
    attributes: NotRequired[Annotated[dict[str, str], "Other attributes that rules can match."]]


class CheckRequest(CallerRequest):
    """A request to decide."""

    path: Path  # type: ignore[misc]  # required here
    cost: NotRequired[
        Annotated[Cost, "For all rules, or by rule id. Default: the cost that each rule defines."]
    ]
    peek: NotRequired[bool]


class ReservationRequest(CallerRequest):
    """A request for which an amount is held."""

    path: Path  # type: ignore[misc]  # required here
    cost: Annotated[Cost, "At least 1 for each rule that holds an amount."]
    ttl: NotRequired[Annotated[float, "Seconds.", Keywords(minimum=0.001, default=60)]]


class CommitRequest(TypedDict):
    """The actual cost of a reservation."""

    cost: NotRequired[Annotated[Cost, "Default: the reserved amount."]]


class RuleDecision(TypedDict):
    """The decision of one rule."""

    id: str
    mode: Literal["enforce", "shadow"]
    limit: Annotated[str, "The tightest limit, in the notation of rules."]
    quota: Whole
    cost: Amount
    allowed: bool
    remaining: Whole
    retry_after_ms: Annotated[int | None, "0 if allowed; null if the cost can never fit."]
    is_estimate: NotRequired[Estimate]
    reset_after: Annotated[float, Keywords(minimum=0)]
    source: str


class Decision(TypedDict):
    """The decision of all rules."""

    allowed: bool
    limit: Annotated[str | None, "The id of the tightest rule; null if there is none."]
    quota: Annotated[int | None, "The quota of the tightest limit."]
    remaining: Annotated[int | None, "The largest cost that would be allowed now."]
    retry_after: Annotated[int | None, "Seconds, rounded up; null if waiting does not help."]
    retry_after_ms: Annotated[int | None, "The same in milliseconds."]
    is_estimate: NotRequired[Estimate]
    delay_ms: NotRequired[
        Annotated[
            int,
            "Time to wait in the queue; absent if the request may proceed now.",
            Keywords(minimum=1),
        ]
    ]
    reset_after: Annotated[float, "Seconds until all limits are unused again."]
    source: Annotated[str | None, "The origin of the decision: `store`, or a fallback."]
    revision: Annotated[int, "The revision of the policy in force."]
    rules: list[RuleDecision]


Error = Annotated[str, Keywords(enum=[one[0] for one in (EXCEEDED, OUTAGE, BUSY, BLOCKED)])]
Message = Annotated[str, "A message for people."]


class DeniedDecision(Decision):
    """A denial, for the code that enforces."""

    error: Error
    message: Message


class Refusal(TypedDict):
    """A denial that a gateway passes on."""

    error: Error
    message: Message
    limit: NotRequired[Annotated[str, "The id of the rule that denied the request."]]
    retry_after: NotRequired[int]
    retry_after_ms: NotRequired[int]


class _Held(TypedDict):
    id: str
    expires: Annotated[float, "Time of expiry, epoch seconds."]


class Reservation(_Held, Decision):
    """A decision that holds an amount."""


class Settlement(TypedDict):
    """The amounts that were charged, by rule."""

    charged: dict[str, Amount]


class LimitStatus(TypedDict):
    """The state of one limit."""

    name: Annotated[str, "The id of the rule; for its second limit `id/2`."]
    limit: str
    quota: int
    window: NotRequired[Annotated[int, "Seconds."]]
    remaining: NotRequired[int]
    reset: NotRequired[Annotated[int, "Time of the full reset, epoch seconds."]]
    reset_after: NotRequired[float]
    endpoints: NotRequired[list[str]]
    methods: NotRequired[list[str]]


class Standing(TypedDict):
    """All limits of a caller."""

    limits: list[LimitStatus]


class Health(TypedDict):
    """The state of a worker."""

    status: str
    reasons: NotRequired[list[str]]


class InvalidField(TypedDict):
    """An error in a body."""

    field: Annotated[str, "The field; empty for the whole body."]
    message: Annotated[str, "The value that was found."]
    hint: NotRequired[Annotated[str, "The value that was expected."]]


class Problem(TypedDict):
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: NotRequired[list[InvalidField]]


NAMED: Final[tuple[type, ...]] = (
    CheckRequest,
    CallerRequest,
    ReservationRequest,
    CommitRequest,
    RuleDecision,
    Decision,
    DeniedDecision,
    Refusal,
    Reservation,
    Settlement,
    Standing,
    Health,
    Problem,
)
"""The components of the OpenAPI document, by their names."""


def fields_of(body: type) -> dict[str, tuple[Any, bool]]:
    """The fields of *body*: the type of each, and whether it is required."""
    found = {}
    for name, hint in get_type_hints(body, include_extras=True).items():
        is_optional = get_origin(hint) is NotRequired
        found[name] = (get_args(hint)[0] if is_optional else hint, not is_optional)
    return found


def body_schema(body: type) -> Schema:
    """The JSON Schema of an object with the fields of *body* and no others."""
    fields = fields_of(body)
    required = [name for name, (_, is_required) in fields.items() if is_required]
    schema: Schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _schema(hint) for name, (hint, _) in fields.items()},
    }
    return schema | ({"required": required} if required else {})


_TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def _schema(hint: Any) -> Schema:
    if hint in NAMED:
        return {"$ref": f"#/components/schemas/{hint.__name__}"}
    if is_typeddict(hint):
        return body_schema(hint)
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(*inner)
    if origin is Literal:
        return {"const": inner[0]} if len(inner) == 1 else {"enum": list(inner)}
    if origin is list:
        return {"type": "array", "items": _schema(inner[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(inner[1])}
    if NoneType in inner:
        return {"type": [_TYPES[one] for one in inner]}
    return {"oneOf": [_schema(one) for one in inner]}


def _annotated(hint: Any, *notes: str | Keywords) -> Schema:
    found = _schema(hint)
    for one in notes:
        found |= {"description": one} if isinstance(one, str) else one.words
    if "enum" in found:
        del found["type"]
    return found
