"""The HTTP endpoints of envoyproxy/ratelimit: `/json`, `/healthcheck`, `/rlconfig`.

`POST /json` is the gRPC call in the JSON of Protocol Buffers. Names are read as they are defined
(`hits_addend`) and as JSON spells them (`hitsAddend`), and written as JSON spells them. The status
is 200 for OK, 429 for OVER_LIMIT, 400 for an invalid request, and 500 for an error.
"""

from __future__ import annotations

import json
from ipaddress import ip_address
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import json_format

from headgate.service.grpc.method import CallError, Code
from headgate.service.rls.messages import OVER_LIMIT, RateLimitRequest, RateLimitResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from headgate.policy.envoy_config.config import Descriptor
    from headgate.service.core import Core
    from headgate.service.grpc.method import Unary
    from headgate.service.rls.requests import RlsOptions

    App = Callable[[Any, Any, Any], Awaitable[None]]

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


def ratelimit_apps(core: Core) -> dict[str, App]:
    """ASGI apps by path, for a service with the configuration of envoyproxy/ratelimit.

    `/healthcheck` is 200 if the worker is ready, 500 otherwise. `/rlconfig` lists the limits in
    force, for clients on this machine only: descriptor values may be secrets.
    """

    async def health(_scope: Any, _receive: Any, send: Any) -> None:
        reasons = core.not_ready()
        await _respond(send, 500 if reasons else 200, "\n".join(reasons) or "OK")

    async def config(scope: Any, _receive: Any, send: Any) -> None:
        if not _is_local(scope.get("client")):
            await _respond(send, 403, "the configuration is shown to clients on this machine only")
        elif core.envoy is not None:
            domains = core.envoy.domains.items()
            lines = [_config_lines(name, domain.descriptors) for name, domain in domains]
            await _respond(send, 200, "".join(chain.from_iterable(lines)))
        else:
            await _respond(send, 404, "no configuration is in force yet")

    return {"/healthcheck": health, "/rlconfig": config}


def _is_local(client: tuple[str, int] | None) -> bool:
    return client is None or not client[0] or ip_address(client[0]).is_loopback


def _config_lines(path: str, descriptors: Iterable[Descriptor]) -> Iterator[str]:
    """The limits below *path*, one per line, in the format of envoyproxy/ratelimit."""
    for one in descriptors:
        name, limit = f"{path}.{one.name}", one.rate_limit
        if limit is not None:
            unit = "UNKNOWN" if limit.unit is None else limit.unit.upper()
            yield (
                f"{name}: unit={unit} requests_per_unit={limit.requests_per_unit},"
                f" shadow_mode: {str(one.shadow_mode).lower()},"
                f" quota_mode: {str(one.quota_mode).lower()}\n"
            )
        yield from _config_lines(name, one.descriptors)


async def _respond(send: Any, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode("utf-8", "replace")})
