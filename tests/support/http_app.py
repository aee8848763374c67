"""The app in this process: one request at a time, on a clock that stands still."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.errors import StoreError
from headgate.policy.loader import read_policy
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.core import Core
from headgate.service.http import HttpApp
from headgate.service.http.replies import HttpOptions
from headgate.stores import MemoryStore
from headgate.testing import ManualClock
from tests.support.async_stores import LoopStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headgate.errors import StoreFault
    from headgate.stores.operations import Operation

R = TypeVar("R")

START = 1_800_000_000.0
POLICY = """
version: 1
identity:
  ip: {trusted_proxies: [10.0.0.0/8]}
rules:
  - {id: per-ip, match: {endpoint: "/api/**"}, key_by: ip, limit: 3/minute}
"""


class FakeStore(LoopStore):
    """Counters in this process, which can be *gone*, or *stuck* and never answer."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.inner = MemoryStore(clock=clock or ManualClock(START))
        self.is_gone = False
        self.is_stuck = False
        self.reason: StoreFault = "unreachable"
        self.is_undone: bool | None = None
        """Whether who asks while it is gone is told that nothing was done."""

    async def arun(self, operation: Operation[R]) -> R:
        if self.is_gone:
            raise StoreError("it is gone", reason=self.reason, is_undone=self.is_undone)
        if self.is_stuck:
            await asyncio.Event().wait()
        return self.inner.run(operation)


@dataclass(frozen=True)
class Answer:
    status: int
    lines: list[tuple[str, str]]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        found = dict(self.lines)
        assert len(found) == len(self.lines), self.lines
        return found

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def core_of(policy: str = POLICY, *, clock: ManualClock | None = None, **more: Any) -> Core:
    clock = clock or ManualClock(START)
    store = more.pop("store", None) or FakeStore(clock)
    engine = AsyncRuleEngine(read_policy(policy), store=store, salt=b"salt")
    return Core(rules=engine, clock=clock, secret=b"a secret of the service", **more)


def app_of(policy: str = POLICY, **more: Any) -> HttpApp:
    """An app that a busy machine may keep waiting for longer than the second that is usual."""
    return HttpApp(core_of(policy, **more), options=HttpOptions(deadline=60.0))


def scope_of(
    method: str,
    path: str | bytes,
    headers: Sequence[tuple[str, str]] = (),
    *,
    peer: str | None = "127.0.0.1",
    query: bytes = b"",
) -> dict[str, Any]:
    raw = path if isinstance(path, bytes) else path.encode()
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "method": method,
        "path": raw.decode("latin-1"),
        "raw_path": raw,
        "query_string": query,
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers],
        "client": None if peer is None else (peer, 50_000),
    }


async def answer_of(app: Any, scope: dict[str, Any], *chunks: bytes) -> Answer:
    """What *app* says; the response has to be whole, and only one."""
    sent: list[dict[str, Any]] = []
    left = list(chunks or (b"",))

    async def receive() -> dict[str, Any]:
        assert left, "the app asked for more than there was"
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start, body = sent
    assert (start["type"], body["type"]) == ("http.response.start", "http.response.body")
    assert not body.get("more_body", False)
    lines = [(name.decode("ascii"), value.decode("ascii")) for name, value in start["headers"]]
    answer = Answer(start["status"], lines, body["body"])
    if scope["method"] != "HEAD" and answer.status not in (204, 304):
        assert answer.headers["content-length"] == str(len(answer.body))
    return answer


def ask(
    app: Any,
    method: str,
    path: str | bytes,
    headers: Sequence[tuple[str, str]] = (),
    *chunks: bytes,
    **more: Any,
) -> Answer:
    """One request without JSON."""
    return asyncio.run(answer_of(app, scope_of(method, path, headers, **more), *chunks))


def post(app: Any, path: str, content: object, *headers: tuple[str, str]) -> Answer:
    """One request with *content* as JSON; bytes are sent as they are."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return ask(app, "POST", path, [("content-type", "application/json"), *headers], body)


def check(app: Any, path: str = "/api/a", ip: str = "203.0.113.7", **more: Any) -> Answer:
    return post(app, "/v1/check", {"path": path, "ip": ip, **more})
