"""`headgate top`: its arguments, its token and the printed picture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from headgate.cli import main
from headgate.cli.admin_client import AdminClient, AdminError
from tests.support.live_answers import answer, rule

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TOKEN = "t" * 20


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The response of a service at any URL."""
    found = answer(rule("a", allowed=9), rule("b", denied=1))
    monkeypatch.setenv("HEADGATE_ADMIN_TOKEN", TOKEN)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("HEADGATE_URL", raising=False)
    monkeypatch.setattr(AdminClient, "get", lambda *_: found)
    return found


def test_one_picture_is_printed_if_stdout_is_not_a_terminal(
    figures: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top"]) == 0
    out = capsys.readouterr().out
    assert figures["store"]["url"] in out
    assert "\033" not in out
    assert all(len(line) <= 60 for line in out.splitlines())


def test_json_is_the_response_of_the_service(
    figures: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == figures


@pytest.mark.usefixtures("figures")
def test_an_unknown_rule_is_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--rule", "a"]) == 0
    assert "a: 900 allowed, 0 denied" in capsys.readouterr().out
    assert main(["top", "--once", "--rule", "x"]) == 1
    assert "There is no rule 'x'." in capsys.readouterr().out
    assert main(["top", "--json", "--rule", "x"]) == 1


def test_an_unreachable_service_is_reported_in_one_line(
    figures: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def get(*_: object) -> Mapping[str, Any]:
        raise AdminError("Connection refused")

    monkeypatch.setattr(AdminClient, "get", get)
    assert figures
    assert main(["top", "--url", "http://127.0.0.1:1"]) == 2
    err = capsys.readouterr().err
    assert err == ("headgate top: no figures from http://127.0.0.1:1: Connection refused\n")


@pytest.mark.parametrize("interval", ["0", "-1", "50ms", "2h", "soon", "1e3", "9999999"])
def test_a_bad_interval_is_wrong_usage(interval: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", f"--interval={interval}"]) == 2
    assert "500ms" in capsys.readouterr().err


@pytest.mark.usefixtures("figures")
@pytest.mark.parametrize("interval", ["1", "1s", "0.5s", "500ms"])
def test_an_interval_is_seconds_or_milliseconds(interval: str) -> None:
    assert main(["top", "--once", "--interval", interval]) == 0


@pytest.mark.usefixtures("figures")
@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x",
        "127.0.0.1:8090",
        "http://",
        "http://a:b@c",
        "http://h:x",
        "http://a..b",
        f"http://{'a' * 64}",
        "unix:",
    ],
)
def test_a_bad_url_is_wrong_usage(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", f"--url={url}"]) == 2
    assert "expected http://127.0.0.1:8090" in capsys.readouterr().err


def test_the_token_is_in_a_file_or_a_variable(
    figures: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert figures
    monkeypatch.delenv("HEADGATE_ADMIN_TOKEN")
    assert main(["top", "--once"]) == 2
    assert "HEADGATE_ADMIN_TOKEN" in capsys.readouterr().err
    file = tmp_path / "token"
    assert main(["top", "--once", "--token-file", str(file)]) == 2
    assert "No such file" in capsys.readouterr().err
    for content in (b"", b"a\x00b", b"\xff\xfe"):
        file.write_bytes(content)
        assert main(["top", "--once", "--token-file", str(file)]) == 2
        assert "token" in capsys.readouterr().err
    file.write_text(f"{TOKEN}\n")
    assert main(["top", "--once", "--token-file", str(file)]) == 0


def test_without_rich_the_extra_is_named_and_json_works() -> None:
    code = """
import sys; sys.modules["rich"] = None
from headgate.cli import main
from headgate.cli.admin_client import AdminClient
AdminClient.get = lambda *_: {}
print(main(["top", "--json"]), main(["top", "--once"]))
"""
    env = {**os.environ, "HEADGATE_ADMIN_TOKEN": TOKEN}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.split() == ["{}", "0", "2"]
    assert "needs the package 'rich': pip install 'headgate[cli]'" in done.stderr
