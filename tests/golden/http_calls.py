"""Calls over HTTP for a corpus, and how they are made."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from tests.golden.transcript import Transcript
    from tests.support.service_process import ServiceProcess

_JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Wait:
    """Not a call: so many seconds pass."""

    seconds: float


@dataclass(frozen=True)
class Call:
    """A request. *path* goes out as it is, but `{id}` is that of the reservation made last, and
    `{token}` in a header is the debug token made last.

    *is_spread*: how long the caller is to wait is drawn at random, from 1 to 5 seconds.
    """

    method: str
    path: str
    headers: Mapping[str, str] | list[tuple[str, str]] = field(default_factory=dict)
    body: bytes | str | None = None
    times: int = 1
    is_spread: bool = False


Step = Call | Wait


def post(
    path: str, content: Any = None, headers: Mapping[str, str] | None = None, times: int = 1
) -> Call:
    """A call with *content* as JSON; texts and bytes are sent as they are."""
    return sent("POST", path, content, headers, times)


def sent(
    method: str,
    path: str,
    content: Any = None,
    headers: Mapping[str, str] | None = None,
    times: int = 1,
) -> Call:
    """The same with another method."""
    body = content if isinstance(content, bytes | str) else json.dumps(content)
    return Call(method, path, {**_JSON, **(headers or {})}, body, times)


def get(path: str, headers: Mapping[str, str] | None = None, times: int = 1) -> Call:
    """A call without a body."""
    return Call("GET", path, headers or {}, times=times)


def spread(call: Call) -> Call:
    """*call*, whose answer says at random how long to wait."""
    return replace(call, is_spread=True)


def record(service: ServiceProcess, corpus: Mapping[str, Step], transcript: Transcript) -> None:
    """Make all calls of *corpus*, one after the other."""
    made = {"id": "", "token": ""}
    for name, step in corpus.items():
        if isinstance(step, Wait):
            service.advance(step.seconds)
            continue
        for number in range(1, step.times + 1):
            response = _send(service, step, made)
            call = name if step.times == 1 else f"{name} #{number}"
            transcript.add_response(call, response, is_spread=step.is_spread)
            if response.status_code == 201 or step.path.endswith("/debug-tokens"):
                made |= response.json()


def _send(service: ServiceProcess, call: Call, made: Mapping[str, str]) -> httpx.Response:
    lines = call.headers if isinstance(call.headers, list) else list(call.headers.items())
    names = {name.lower() for name, _ in lines}
    if "host" not in names:
        lines = [("host", "localhost"), *lines]
    lines = [(name, value.replace("{token}", made["token"])) for name, value in lines]
    target = call.path.replace("{id}", made["id"])
    request = service.http.build_request(
        call.method,
        "/",
        headers=lines,
        content=call.body,
        extensions={"target": target.encode("latin-1")},
    )
    return service.http.send(request)
