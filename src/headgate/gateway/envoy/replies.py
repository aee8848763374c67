"""What Envoy itself answers: JSON in the form of refusals, which says nothing of what is behind.

The answers of limits have their bodies from their filters, but for those of local limits. What
they know of a refusal stands in its headers: the rule, if that may be told, and how long to wait.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from headgate.gateway.envoy.refusals import LIMIT_HEADER
from headgate.gateway.envoy.values import extension
from headgate.responses.bodies import EXCEEDED, JSON, OUTAGE
from headgate.rules.envoy.gateway import OUTAGE as REFUSED_BY_OUTAGE
from headgate.rules.envoy.gateway import REFUSED

if TYPE_CHECKING:
    from headgate.gateway.envoy.values import Json

RATE_LIMIT: Final = "envoy.filters.http.ratelimit"
"""Whose metadata says why the service refused."""

OUTAGE_STATUS: Final = 503
_RUNTIME: Final = "headgate.reply"
_IS_LOCAL: Final = "response.code_details == 'local_rate_limited'"
_IS_TOLD: Final = (
    f"{_IS_LOCAL} && '{LIMIT_HEADER}' in response.headers && 'retry-after' in response.headers"
)
_WAIT: Final = "%RESP(retry-after)%"
_TOLD: Final = (
    f'{{"error": "{EXCEEDED[0]}", "message": "{EXCEEDED[2]}. Try again in {_WAIT} s.",'
    f' "limit": "%RESP({LIMIT_HEADER})%", "retry_after_ms": {_WAIT}000, "retry_after": {_WAIT}}}'
)
_UNTOLD: Final = (EXCEEDED[0], f"{EXCEEDED[2]}. Try again later.")
_BY_FLAGS: Final = (
    (("RLSE",), OUTAGE[0], f"{OUTAGE[2]}. Try again later."),
    (("NR",), "not_found", "Nothing is here."),
    (
        ("UF", "UH", "UC", "UO", "UR", "URX", "LR", "NC"),
        "upstream_unavailable",
        "The server behind this gateway does not answer. Try again later.",
    ),
)
_BY_STATUS: Final = (
    (400, "bad_request", "This request is not understood."),
    (403, "forbidden", "This request is not allowed."),
    (404, "not_found", "Nothing is here."),
    (408, "request_timeout", "The request took too long to arrive."),
    (413, "payload_too_large", "The request is too large."),
    (426, "upgrade_required", "Use HTTP/1.1 or later."),
    (431, "headers_too_large", "The head of the request is too large."),
    (500, "internal_error", "The gateway cannot handle this request."),
    (501, "not_implemented", "The gateway cannot handle such a request."),
    (502, "bad_gateway", "The server behind this gateway gave no answer that makes sense."),
    (503, "overloaded", "The gateway cannot take this request now. Try again later."),
    (504, "upstream_timeout", "The server behind this gateway took too long."),
)


def local_replies() -> Json:
    """The bodies of what Envoy answers without an upstream, by why or else by status."""
    limits = [_formatted(_where(_IS_TOLD), _TOLD), _mapper(_where(_IS_LOCAL), *_UNTOLD)]
    flags = [_mapper(_flagged(flags), error, told) for flags, error, told in _BY_FLAGS]
    statuses = [_mapper(_with_status(code), error, told) for code, error, told in _BY_STATUS]
    return {"mappers": [_outage(), *limits, *flags, *statuses]}


def plain_body(error: str, message: str) -> str:
    """The body of an answer."""
    return json.dumps({"error": error, "message": message})


def _outage() -> Json:
    """What the service refused for want of its store: its own body, but no 429, which is what the
    filter answers to every refusal."""
    matcher = {
        "filter": RATE_LIMIT,
        "path": [{"key": REFUSED}],
        "value": {"string_match": {"exact": REFUSED_BY_OUTAGE}},
    }
    # Unless it is said, what has no such metadata counts as an outage too.
    which = {"metadata_filter": {"matcher": matcher, "match_if_key_not_found": False}}
    return {"filter": which, "status_code": OUTAGE_STATUS}


def _mapper(which: Json, error: str, message: str) -> Json:
    return _formatted(which, plain_body(error, message).replace("%", "%%"))


def _formatted(which: Json, text: str) -> Json:
    return {
        "filter": which,
        "body_format_override": {
            "content_type": JSON,
            "text_format_source": {"inline_string": text},
        },
    }


def _where(expression: str) -> Json:
    kind = "envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter"
    name = "envoy.access_loggers.extension_filters.cel"
    return {"extension_filter": extension(name, kind, expression=expression)}


def _flagged(flags: tuple[str, ...]) -> Json:
    return {"response_flag_filter": {"flags": list(flags)}}


def _with_status(code: int) -> Json:
    value = {"default_value": code, "runtime_key": f"{_RUNTIME}.{code}"}
    return {"status_code_filter": {"comparison": {"op": "EQ", "value": value}}}
