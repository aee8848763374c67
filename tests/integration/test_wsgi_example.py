"""The example of a WSGI app, run as its first lines say."""

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
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    port = free_port()
    where = f"http://{HOST}:{port}"
    monkeypatch.setenv("PORT", str(port))
    call: Sequence[str] = [sys.executable, str(EXAMPLES / "wsgi_app.py")]
    if request.param == "gunicorn":
        options = ["--bind", f"{HOST}:{port}", "--workers", "2", "--no-control-socket"]
        call = [
            sys.executable,
            "-m",
            "gunicorn",
            "--chdir",
            str(EXAMPLES),
            "wsgi_app:app",
            *options,
        ]
    with RedisServer() as store:
        monkeypatch.setenv("HEADGATE_STORE", store.url)
        with running(call, tmp_path / "log"):
            wait_until(lambda: answers(where), f"{where} answers")
            yield where
    release_port(port)


def test_twenty_requests_a_minute_and_a_page_that_tells_of_them(url: str) -> None:
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
        answers = [client.get("/") for _ in range(40)]  # one comes back every three seconds
        (told,) = client.get("/rate_limit").json()["limits"]
        assert client.get("/health").status_code == 200
    assert {one.status_code for one in answers[:20]} == {200}
    refused = next(one for one in answers if one.status_code == 429)
    assert int(refused.headers["Retry-After"]) in (1, 2, 3)
    assert (told["name"], told["quota"]) == ("default", 20)
