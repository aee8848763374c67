"""The example of a Flask app, run as its first lines say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.servers import RedisServer, free_port, release_port, wait_until
from tests.support.wsgi_servers import HOST, answers, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(params=["itself", "gunicorn"])
def client(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[httpx.Client]:
    port = free_port()
    url = f"http://{HOST}:{port}"
    monkeypatch.setenv("PORT", str(port))
    call: Sequence[str] = [sys.executable, str(EXAMPLES / "flask_app.py")]
    if request.param == "gunicorn":
        options = ["--bind", f"{HOST}:{port}", "--workers", "2", "--no-control-socket"]
        call = [
            sys.executable,
            "-m",
            "gunicorn",
            "--chdir",
            str(EXAMPLES),
            "flask_app:app",
            *options,
        ]
    with RedisServer() as store:
        monkeypatch.setenv("HEADGATE_STORE", store.url)
        with running(call, tmp_path / "log"):
            wait_until(lambda: answers(url), f"{url} answers")
            with httpx.Client(base_url=url, trust_env=False, timeout=30) as made:
                yield made
    release_port(port)


def test_the_app_does_what_it_says(client: httpx.Client) -> None:
    first = client.get("/")
    assert first.headers["RateLimit-Policy"] == '"default";q=100;w=60'
    assert "RateLimit" not in client.get("/health").headers
    right = [client.post("/login", data={"password": "open sesame"}) for _ in range(6)]
    assert [one.status_code for one in right] == [200] * 6
    wrong = [client.post("/login").status_code for _ in range(6)]
    assert wrong == [401] * 5 + [429]
    assert client.get("/rate_limit").json()["limits"][0]["name"] == "default"


def left(client: httpx.Client, user: str) -> int:
    """What is left of the words of *user*, while 200 of them are set aside; asking costs one."""
    shown = client.get(f"/words/1?user={user}").headers["RateLimit"].split(", ")
    (figure,) = [part.split(";")[1] for part in shown if part.startswith('"words"')]
    return int(figure.removeprefix("r="))


def test_streams_cost_what_was_sent(client: httpx.Client) -> None:
    assert client.get("/words/3?user=ann").text == "word 1\nword 2\nword 3\n"
    # at most 600 if all is charged that was set aside, and until the server has closed the stream
    wait_until(lambda: left(client, "ann") > 700, "the stream is settled")
    assert client.get("/words/300?user=bob").status_code == 200
    assert client.get("/words/300?user=bob").status_code == 200
