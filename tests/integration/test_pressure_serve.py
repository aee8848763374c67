"""An app that struggles, and the decision service on the same Redis: both lower their limits."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from headgate.integrations.asgi import RateLimitMiddleware
from tests.support import uvicorn_apps
from tests.support.decision_service import PLAIN, Service, serving
from tests.support.servers import RedisServer, is_installed, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

RULES = """\
version: 1
pressure: {errors: 20%, interval: 100ms, recovery: 20%}
rules:
  - id: api
    match: {endpoint: /api/**}
    key_by: ip
    limit: 40/hour
    adaptive: {floor: 20%}
  - {id: app, match: {endpoint: /app}, key_by: global, limit: 1000000/s}
"""


class App:
    """An app that fails while it *is_troubled*."""

    def __init__(self) -> None:
        self.is_troubled = True

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        status = 500 if self.is_troubled else 200
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@contextmanager
def busy(url: str) -> Iterator[None]:
    """Somebody asks the app all the time."""
    ending = threading.Event()

    def ask() -> None:
        with httpx.Client(verify=False, trust_env=False) as client:  # noqa: S501 - no TLS
            while not ending.is_set():
                client.get(f"{url}/app")

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def ask(service: Service, ip: str) -> tuple[int, int, str]:
    """The status of a check, the limit that it tells, and the kind of refusal."""
    body = {"method": "GET", "path": "/api/orders", "ip": ip}
    headers = {"accept": "application/problem+json"}
    answer = PLAIN.post(f"{service.url}/v1/check", json=body, headers=headers)
    return answer.status_code, int(answer.headers["x-ratelimit-limit"]), answer.text


def test_the_service_lowers_its_limits_with_an_app_that_struggles_and_restores_them(
    tmp_path: Path,
) -> None:
    app = App()
    with (
        RedisServer() as redis,
        serving(tmp_path, "--store", redis.url, rules=RULES) as service,
        uvicorn_apps.serving(
            RateLimitMiddleware(app, policy=tmp_path / "rules.yaml", store=redis.url)
        ) as url,
    ):
        assert ask(service, "192.0.2.1")[:2] == (200, 40)
        with busy(url):
            wait_until(lambda: ask(service, "192.0.2.2")[1] == 8, "limits are at their floor")
            seen = [ask(service, "192.0.2.3") for _ in range(12)]
            assert [status for status, _, _ in seen] == [200] * 8 + [503] * 4
            assert "temporary-reduced-capacity" in seen[-1][2]
            app.is_troubled = False
            wait_until(lambda: ask(service, "192.0.2.2")[1] == 40, "limits are whole again")
            rest = [ask(service, "192.0.2.3") for _ in range(40)]
        assert [status for status, _, _ in rest] == [200] * 32 + [429] * 8, "nothing twice"
        assert "quota-exceeded" in rest[-1][2]
