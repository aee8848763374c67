"""`headgate loadtest` against real servers: limits that hold, and some that do not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from fractions import Fraction
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest

from headgate import AsyncRateLimiter
from headgate.cli import main
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.loadtest.answers import AnswerReader
from headgate.loadtest.client import Sender
from headgate.loadtest.limit_under_test import limit_in_notation
from headgate.loadtest.target import Load, Target
from headgate.units import SECOND
from tests.support import decision_service
from tests.support.servers import wait_until
from tests.support.uvicorn_apps import serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "0123456789abcdef-sesame"  # noqa: S105 - of these tests alone
BRIEFLY = ("--duration", "400ms")
CALLERS = ("--key-header", "x-api-key=k-{run}-{n}", "--callers", "3")
RULES = """\
version: 1
rules:
  - {id: per-key, key_by: api_key, limit: 40/m}
  - {id: log, match: {endpoint: /log}, key_by: api_key, limit: 20/m sliding_window_log}
  - {id: window, match: {endpoint: /window}, key_by: api_key, limit: 20/m fixed_window}
  - {id: cells, match: {endpoint: /cells}, key_by: api_key, limit: 20/m sliding_window_counter}
"""


def loadtest(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    """The exit status, and the last line."""
    status = main(["loadtest", *argv, *BRIEFLY])
    printed = capsys.readouterr()
    assert not printed.err
    return status, printed.out.splitlines()[-1]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[decision_service.Service]:
    directory = tmp_path_factory.mktemp("loadtest")
    with decision_service.serving(
        directory, rules=RULES, env={"HEADGATE_ADMIN_TOKEN": TOKEN}
    ) as one:
        yield one


class TestAgainstTheService:
    def test_the_limit_of_a_rule_of_the_admin_api_holds_for_each_caller(
        self,
        service: decision_service.Service,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("HEADGATE_ADMIN_TOKEN", TOKEN)
        rule = ("--rule", "per-key", "--admin", service.url)
        asked = json.dumps({"method": "GET", "path": "/", "headers": {"x-api-key": "a-{run}-{n}"}})
        url = f"{service.url}/v1/check"
        argv = ["loadtest", url, *rule, "--data", asked, "--callers", "3", *BRIEFLY, "--json"]
        assert main(argv) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["holds"] is True
        assert found["verdict"].startswith("holds")
        assert (found["rule_id"], found["limit"]) == ("per-key", "40/m")
        assert found["allowed"] + found["denied"] == found["sent"]
        assert found["denied_elsewhere"] == found["failures"] == {}
        assert found["latency"]["denied"]["count"] == found["denied"]
        assert not [note for note in found["notes"] if "Retry-After" in note]

    @pytest.mark.parametrize("rule", ["log", "window", "cells"])
    def test_a_limit_beside_another_is_told_from_it(
        self,
        rule: str,
        service: decision_service.Service,
        capsys: pytest.CaptureFixture[str],
        tmp_path: Path,
    ) -> None:
        (tmp_path / "rules.yaml").write_text(RULES, encoding="utf-8")
        of = ("--rule", rule, "--rules", str(tmp_path / "rules.yaml"))
        url = f"{service.url}/v1/authorize/{rule}"
        status, line = loadtest(capsys, url, *of, "--key-header", "x-api-key={run}")
        assert status == 0, line
        assert line.startswith("holds"), line

    def test_a_limit_that_is_not_the_one_in_force_does_not_hold(
        self, service: decision_service.Service, capsys: pytest.CaptureFixture[str]
    ) -> None:
        url = f"{service.url}/v1/authorize/x"
        status, line = loadtest(capsys, url, "--rule", "20/m", *CALLERS, "--rate", "300/s")
        assert status == 1, line
        assert line.startswith("does NOT hold: "), line

    def test_a_path_that_is_not_there_says_nothing(
        self, service: decision_service.Service, capsys: pytest.CaptureFixture[str]
    ) -> None:
        status, line = loadtest(capsys, f"{service.url}/nothing", "--rule", "9/s")
        assert (status, line.partition(":")[0]) == (2, "unknown")
        assert "x status 404" in line


async def _answers(scope: Any, receive: Any, send: Any) -> None:
    """An app that says yes to everything."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


def _limited(limit: str) -> RateLimitMiddleware:
    return RateLimitMiddleware(_answers, limits=limit)


def _counting_apart(limit: str, workers: int) -> Any:
    """An app on so many workers, each of which counts for itself: the classical mistake."""
    turns = cycle([_limited(limit) for _ in range(workers)])

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (next(turns) if scope["type"] == "http" else _answers)(scope, receive, send)

    return app


class TestAgainstAnApp:
    def test_a_limit_in_the_middleware_holds(self, capsys: pytest.CaptureFixture[str]) -> None:
        with serving(_limited("50/m burst 10"), lifespan="off") as url:
            status, line = loadtest(capsys, f"{url}/x", "--rule", "50/m burst 10")
        assert status == 0, line
        assert line.startswith("holds"), line

    def test_what_was_used_before_is_noticed(self, capsys: pytest.CaptureFixture[str]) -> None:
        with serving(_limited("10/m"), lifespan="off") as url:
            call = ["loadtest", f"{url}/x", "--rule", "10/m", *BRIEFLY]
            assert main(call) == 0
            assert "not empty at the start" not in capsys.readouterr().out
            assert main(call) == 0
            told = capsys.readouterr().out
        assert "the counter was in use at the start: " in told
        assert told.splitlines()[-1].startswith("holds: "), told

    def test_a_limiter_that_allows_half_as_much_again_is_caught(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with serving(_limited("75/m"), lifespan="off") as url:
            status, line = loadtest(capsys, f"{url}/x", "--rule", "50/m", "--rate", "250")
        assert status == 1, line
        assert line.startswith("does NOT hold: "), line

    @pytest.mark.parametrize("limit", ["30/m", "30/m sliding_window_log"])
    def test_workers_that_count_apart_are_caught(
        self, limit: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with serving(_counting_apart(limit, 2), lifespan="off") as url:
            status, line = loadtest(capsys, f"{url}/x", "--rule", limit, "--rate", "250")
        assert status == 1, line

    def test_an_app_that_limits_nothing_is_caught(self, capsys: pytest.CaptureFixture[str]) -> None:
        with serving(_answers, lifespan="off") as url:
            status, line = loadtest(capsys, f"{url}/x", "--rule", "20/m")
        assert status == 1, line
        assert line.startswith("does NOT hold: 41 allowed in "), line

    def test_a_redirect_is_not_followed(self, capsys: pytest.CaptureFixture[str]) -> None:
        asked: list[str] = []

        async def moved(scope: Any, receive: Any, send: Any) -> None:
            asked.append(scope["path"])
            headers = [(b"location", b"/elsewhere")]
            await send({"type": "http.response.start", "status": 302, "headers": headers})
            await send({"type": "http.response.body"})

        with serving(moved, lifespan="off") as url:
            status, line = loadtest(capsys, f"{url}/x", "--rule", "5/s")
        assert (status, set(asked)) == (2, {"/x"})
        told = (
            "14 of 14 requests failed (14 x status 302); if 302 means allowed here, give --ok 302"
        )
        assert line == f"unknown: {told}"

    def test_a_limiter_of_somebody_else_is_tested_as_well(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        limiter = AsyncRateLimiter("30/m")

        async def app(scope: Any, receive: Any, send: Any) -> None:
            status = 200 if await limiter.hit("all") else 429
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b"x" * 200_000})

        with serving(app, lifespan="off") as url:
            assert main(["loadtest", f"{url}/x", "--rule", "30/m", *BRIEFLY]) == 0
        told = capsys.readouterr().out
        assert "denials: no Retry-After" in told


def test_nothing_is_sent_when_the_time_is_over() -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.1)
        await _answers(scope, receive, send)

    tested, load = limit_in_notation("5/m"), Load(Fraction(100), SECOND // 2, connections=2)
    with serving(slow, lifespan="off") as url:
        reader = AnswerReader(tested)
        sender = Sender([Target(url)], ["127.0.0.1"], load, reader, grace_ns=0)
        asyncio.run(sender.run())
    record = sender.record
    assert 0 < len(record) <= 12
    assert len(record) + record.unsent == 50
    assert 0 < record.busy < 1


def test_ctrl_c_ends_it_with_the_figures_so_far() -> None:
    asked = 0
    limited = _limited("5/m")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal asked
        asked += 1
        await limited(scope, receive, send)

    with serving(app, lifespan="off") as url:
        call = [*("loadtest", url, "--rule", "5/m"), "--rate", "50/s", "--duration", "1m"]
        with subprocess.Popen(  # noqa: S603 - the tests' own
            [sys.executable, "-m", "headgate.cli", *call],
            stdout=subprocess.PIPE,
            text=True,
            # A shell that runs the tests in the background has them ignore the signal.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        ) as process:
            wait_until(lambda: asked >= 20, "requests came", within=30)
            os.kill(process.pid, signal.SIGINT)
            told, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "note: stopped before the end" in told
    assert told.splitlines()[-1].startswith("holds: 5 allowed in ")


def test_nobody_there_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    status, line = loadtest(capsys, "http://127.0.0.1:1/", "--rule", "5/s")
    assert status == 2
    assert line == "unknown: 14 of 14 requests failed (14 x connection refused)"
