"""`POST /json`: the same call in the JSON of Protocol Buffers, as envoyproxy/ratelimit has it.

Names are read as they are defined (`hits_addend`) and as JSON spells them (`hitsAddend`), and
written as JSON spells them. 200 says OK, 429 OVER_LIMIT, 400 that the request makes no sense, and
500 that it could not be answered.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from google.protobuf import json_format

from headgate.service.grpc.method import CallError, Code
from headgate.service.rls.messages import OVER_LIMIT, RateLimitRequest, RateLimitResponse

if TYPE_CHECKING:
    from headgate.service.grpc.method import Unary
    from headgate.service.rls.options import RlsOptions

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
