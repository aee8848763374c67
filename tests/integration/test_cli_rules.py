"""`headgate rules` as a process of its own, and on the counters of a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from headgate.cli import main
from headgate.engine.request import Request
from headgate.policy.loader import read_policy
from headgate.rule_engine import RuleEngine
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POLICY = """\
version: 1
rules:
  - id: login
    match: {endpoint: /login}
    key_by: [ip, api_key]
    limit: 5/hour sliding_window_log; 100/day fixed_window
"""
REQUEST = Request(path="/login", headers=(("x-api-key", "sesame"),), peer="1.2.3.4")
ASKED = ("/login", "--ip", "1.2.3.4", "-H", "x-api-key: sesame")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "rules.yaml"
    file.write_text(POLICY)
    return str(file)


@pytest.fixture
def explain(path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HEADGATE_SALT", "pepper")
    monkeypatch.delenv("HEADGATE_NAMESPACE", raising=False)

    def ask(*argv: str) -> tuple[int, Any]:
        capsys.readouterr()
        status = main(["rules", "explain", path, *ASKED, "--json", *argv])
        return status, json.loads(capsys.readouterr().out)

    return ask


class TestLive:
    def test_it_tells_what_the_next_request_gets_and_touches_nothing(
        self, server: RedisServer, explain: Any
    ) -> None:
        server.cli("flushall")
        engine = RuleEngine(read_policy(POLICY), store=server.url, salt=b"pepper", namespace="shop")
        live = ("--store", server.url, "--namespace", "shop")
        for used in range(6):
            before = server.cli("keys", "*")
            status, told = explain(*live)
            assert explain(*live)[1]["rules"][0]["limits"][0]["remaining"] == max(4 - used, 0)
            assert server.cli("keys", "*") == before
            happened = engine.check(REQUEST)
            assert (status, told["allowed"]) == (int(not happened.allowed), happened.allowed)
            assert [one["remaining"] for one in told["rules"][0]["limits"]] == [
                part.remaining for part in happened.rules[0].decision.limits
            ]
        assert not happened.allowed
        engine.close()

    def test_a_variable_names_the_store_and_a_flag_goes_over_it(
        self, server: RedisServer, explain: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.cli("flushall")
        engine = RuleEngine(read_policy(POLICY), store=server.url, salt=b"pepper")
        engine.check(REQUEST)
        engine.close()
        monkeypatch.setenv("HEADGATE_STORE", server.url)
        assert explain()[1]["rules"][0]["limits"][0]["remaining"] == 3
        fresh = explain("--store", "memory://")[1]
        assert fresh["rules"][0]["limits"][0]["remaining"] == 4

    def test_a_counter_that_is_split_is_read_as_a_whole(
        self, server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.cli("flushall")
        file = tmp_path / "split.yaml"
        file.write_text(
            "version: 1\nrules: [{id: one, key_by: ip, limit: 800/hour fixed_window, "
            "accuracy: {split: 4}}]"
        )
        engine = RuleEngine(read_policy(file.read_text()), store=server.url)
        for _ in range(4):
            assert engine.check(Request(peer="1.2.3.4"))
        engine.close()
        asked = ("/", "--ip", "1.2.3.4", "--json", "--store", server.url)
        assert main(["rules", "explain", str(file), *asked]) == 0
        (rule,) = json.loads(capsys.readouterr().out)["rules"]
        assert rule["limits"][0]["remaining"] == 795

    def test_a_store_that_does_not_answer_is_one_line(
        self, path: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with RedisServer() as gone:
            url = gone.url
        assert main(["rules", "explain", path, *ASKED, "--store", url]) == 2
        printed = capsys.readouterr()
        assert (printed.out, printed.err.count("\n")) == ("", 1)


def headgate(*argv: str, text: str = "") -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "headgate.cli", "rules", *argv]
    environment = {name: os.environ[name] for name in os.environ if "HEADGATE" not in name}
    return subprocess.run(  # noqa: S603
        call, input=text, capture_output=True, text=True, check=False, env=environment
    )


class TestProcess:
    def test_a_policy_is_checked_from_a_pipe(self) -> None:
        done = headgate("check", "-", text=POLICY)
        assert (done.returncode, done.stdout) == (0, "<stdin>: 1 rule, no problems\n")
        done = headgate("check", "-", text=POLICY.replace("key_by", "keyby"))
        assert done.returncode == 1
        assert done.stdout.startswith("<stdin>:")
        assert done.stderr == ""

    def test_a_refusal_is_status_1(self, path: str) -> None:
        assert headgate("explain", path, *ASKED, "--repeat", "5").returncode == 0
        done = headgate("explain", path, *ASKED, "--repeat", "6")
        assert (done.returncode, done.stderr) == (1, "")
        assert "429 Too Many Requests" in done.stdout
        assert "sesame" not in done.stdout

    def test_a_closed_stdin_is_no_traceback(self) -> None:
        line = f"{sys.executable} -m headgate.cli rules check - <&-"
        done = subprocess.run(  # noqa: S602
            line, shell=True, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1

    @pytest.mark.parametrize("package", ["yaml", "hiredis"])
    def test_a_missing_extra_is_named(self, package: str, path: str) -> None:
        extra = {"yaml": "rules", "hiredis": "redis"}[package]
        argv = ["rules", "explain", path, *ASKED, "--store", "redis://host"]
        code = (
            f"import sys; sys.modules[{package!r}] = None; from headgate.cli import main; "
            f"sys.exit(main({argv!r}))"
        )
        call = [sys.executable, "-c", code]
        done = subprocess.run(call, capture_output=True, text=True, check=False)  # noqa: S603
        assert done.returncode == 2
        assert f"pip install 'headgate[{extra}]'" in done.stderr
        assert "Traceback" not in done.stderr
