"""The example project, as people would start it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.servers import free_port, release_port, wait_until
from tests.support.servers.process import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parents[2] / "examples"
STARTED = {
    "alone": ("{python}", "{examples}/django_app.py", "{port}"),
    "gunicorn": (
        *("{python}", "-m", "gunicorn", "--chdir", "{examples}"),
        *("--bind", "127.0.0.1:{port}", "django_app:application"),
    ),
    "uvicorn": (
        *("{python}", "-m", "uvicorn", "--app-dir", "{examples}"),
        *("--port", "{port}", "django_app:asgi"),
    ),
}


@pytest.fixture(params=STARTED)
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[httpx.Client]:
    port = free_port()
    values = {"python": sys.executable, "examples": EXAMPLES, "port": port}
    process = Process([word.format(**values) for word in STARTED[request.param]], tmp_path / "log")
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            wait_until(lambda: _answers(client), "the example answers", within=60)
            yield client
    finally:
        process.terminate()
        release_port(port)


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.filterwarnings("default")
def test_the_example_does_what_it_says(client: httpx.Client) -> None:
    wrong = [client.post("/login", data={"password": "wrong"}).status_code for _ in range(4)]
    assert wrong == [401, 401, 401, 429]
    assert client.post("/login", data={"password": "open sesame"}).status_code == 429
    story = client.get("/story")
    assert story.text == "Open the gate and let the water in.\n "
    assert '"words"' in story.headers["RateLimit-Policy"]
    assert client.get("/story").headers["RateLimit"].count(";r=") == 2
    shown = client.get("/rate_limit").json()["limits"]
    assert [(one["name"], one["remaining"]) for one in shown] == [("default", 5)]
    assert [client.get("/").status_code for _ in range(6)] == [200] * 5 + [429]
    assert client.get("/health").status_code == 200
