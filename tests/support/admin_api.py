"""An admin API with a memory for a storage, and somebody who calls it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from headgate.config.values import AdminCertificate, AdminToken
from headgate.control.audit import AuditError, AuditEvent, AuditLog
from headgate.control.editor import EditRequest, PolicyEditor
from headgate.control.edits import replace_policy
from headgate.control.source import MemorySource
from headgate.control.watcher import PolicyWatcher
from headgate.engine.request import Request
from headgate.policy.identity.parts import hashed_key
from headgate.policy.model import Policy
from headgate.rule_engine import AsyncRuleEngine
from headgate.service.admin import AdminApp, AdminContext
from headgate.service.core import Core
from headgate.service.live import Live
from headgate.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from headgate.control.live_counters import LiveCounters
    from headgate.control.source import PolicySource
    from headgate.service.core import ShowKey
    from headgate.stores.base import Store

WRITER, READER = "w" * 20, "r" * 20
TOKENS = (
    AdminToken.of("ada", "write", WRITER.encode()),
    AdminToken.of("bob", "read", READER.encode()),
)
RULES: list[dict[str, Any]] = [
    {"id": "login", "match": {"endpoint": "/login"}, "key_by": "ip", "limit": "5/minute"},
    {"id": "api", "key_by": "user_id", "limits": {"free": "10/s", "paid": "20/s; 100/h"}},
]
PROBLEM = "application/problem+json"


class FailingAudit(AuditLog):
    """Cannot be written to while it *is_full*."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False
        self.events: list[AuditEvent] = []

    async def write(self, event: AuditEvent) -> None:
        if self.is_full:
            raise AuditError("the audit line cannot be written: No space left on device")
        self.events.append(event)
        await super().write(event)


@dataclass
class Desk:
    """What is called, and what is behind it. The policy has revision 1, made by `eve`."""

    tokens: tuple[AdminToken, ...] = TOKENS
    certificates: tuple[AdminCertificate, ...] = ()
    live: LiveCounters | None = None
    storage: PolicySource = field(default_factory=MemorySource)
    clock: ManualClock = field(default_factory=ManualClock)
    audit: FailingAudit = field(default_factory=FailingAudit)
    token: str | None = WRITER
    show_key: ShowKey = hashed_key
    store: Store | str = "memory://"

    async def begin(self) -> None:
        clock = self.clock if isinstance(self.store, str) else None
        self.engine = AsyncRuleEngine(Policy(), store=self.store, clock=clock)
        self.editor = PolicyEditor(
            self.storage, clock=self.clock, enforced=lambda: self.watcher.state.revision
        )
        self.watcher = PolicyWatcher(self.storage, self.engine.replace, clock=self.clock)
        self.editor.apply(replace_policy({"version": 1, "rules": RULES}), EditRequest(author="eve"))
        self.watcher.start()
        core = Core(rules=self.engine, clock=self.clock, secret=b"x", show_key=self.show_key)
        context = AdminContext(
            core, self.editor, self.watcher, self.audit, self.live, Live(core, self.watcher)
        )
        self.app = AdminApp(context, self.tokens, self.certificates)
        transport = httpx.ASGITransport(self.app)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://headgate/admin/v1")

    async def end(self) -> None:
        await self.client.aclose()
        self.watcher.stop()
        await self.engine.aclose()

    async def call(self, line: str, body: Any = None, **headers: str) -> httpx.Response:
        """Call as *line* says, `GET /rules`; headers with underscores for hyphens."""
        method, _, path = line.partition(" ")
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            sent.setdefault("authorization", f"Bearer {self.token}")
        if isinstance(body, bytes):
            return await self.client.request(method, path, content=body, headers=sent)
        return await self.client.request(method, path, json=body, headers=sent)

    async def ask(self, line: str, body: Any = None, **headers: str) -> Any:
        """The content of an answer that is 200."""
        answer = await self.call(line, body, **headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def refusal(self, line: str, body: Any = None, **headers: str) -> tuple[int, str]:
        """Status and detail of an answer that is a problem."""
        answer = await self.call(line, body, **headers)
        assert answer.headers["content-type"] == PROBLEM, answer.text
        content = answer.json()
        assert content["status"] == answer.status_code
        return answer.status_code, answer.text

    async def is_unchanged(self) -> bool:
        return self.storage.head().number == 1

    async def hits(self, times: int = 1, *, path: str = "/login", **headers: str) -> list[bool]:
        lines = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        request = Request("POST", path, headers=lines, peer="192.0.2.1")
        return [(await self.engine.check(request)).allowed for _ in range(times)]


def attended(body: Callable[[Desk], Awaitable[None]], desk: Desk | None = None) -> None:
    """Run *body* at a desk."""

    async def main() -> None:
        own = desk or Desk()
        await own.begin()
        try:
            await body(own)
        finally:
            await own.end()

    asyncio.run(main())
