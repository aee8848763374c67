"""`headgate top`: its arguments, its token, and what it prints once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from headgate.cli import main
from headgate.cli.top.client import Asker, LookError, Watch
from tests.support.live_answers import answer, rule

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TOKEN = "t" * 20


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a service would say, at whatever URL it is asked."""
    found = answer(rule("a", allowed=9), rule("b", denied=1))
    monkeypatch.setenv("HEADGATE_ADMIN_TOKEN", TOKEN)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("HEADGATE_URL", raising=False)
    monkeypatch.setattr(Asker, "look", lambda _: found)
    return found


def test_where_stdout_is_no_terminal_one_picture_is_printed(
    told: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top"]) == 0
    out = capsys.readouterr().out
    assert told["store"]["url"] in out
    assert "\033" not in out
    assert all(len(line) <= 60 for line in out.splitlines())


def test_json_is_what_the_service_said(
    told: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == told


@pytest.mark.usefixtures("told")
def test_a_rule_that_is_not_there_is_a_no(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--rule", "a"]) == 0
    assert "the last 120 seconds" in capsys.readouterr().out
    assert main(["top", "--once", "--rule", "x"]) == 1
    assert "there is no rule 'x'" in capsys.readouterr().out
    assert main(["top", "--json", "--rule", "x"]) == 1


def test_a_service_that_cannot_be_asked_is_told_in_one_line(
    told: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def look(_: Asker) -> Mapping[str, Any]:
        raise LookError("Connection refused")

    monkeypatch.setattr(Asker, "look", look)
    assert told
    assert main(["top", "--url", "http://127.0.0.1:1"]) == 2
    err = capsys.readouterr().err
    assert err == (
        "headgate top: http://127.0.0.1:1 does not say how it stands: Connection refused\n"
    )


@pytest.mark.parametrize("interval", ["0", "-1", "50ms", "2h", "soon", "1e3", "9999999"])
def test_what_is_no_interval_is_wrong_usage(
    interval: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", f"--interval={interval}"]) == 2
    assert "500ms" in capsys.readouterr().err


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("interval", ["1", "1s", "0.5s", "500ms"])
def test_an_interval_is_seconds_or_milliseconds(interval: str) -> None:
    assert main(["top", "--once", "--interval", interval]) == 0


@pytest.mark.usefixtures("told")
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
def test_what_is_no_url_is_wrong_usage(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", f"--url={url}"]) == 2
    assert "expected http://127.0.0.1:8090" in capsys.readouterr().err


def test_the_token_is_in_a_file_or_a_variable(
    told: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert told
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


class FakeAsker(Asker):
    """Says these, one after the other; the watch is stopped with the last."""

    def __init__(self, *said: Mapping[str, Any] | LookError) -> None:
        super().__init__("http://127.0.0.1:1", TOKEN)
        self._said = list(said)
        self.watch: Watch | None = None

    def look(self) -> Mapping[str, Any]:
        said = self._said.pop(0)
        if not self._said and self.watch is not None:
            self.watch.stop()
        if isinstance(said, LookError):
            raise said
        return said


def watched(*said: Mapping[str, Any] | LookError) -> tuple[Watch, list[str]]:
    """A watch that has heard all of *said*, and the troubles that it told meanwhile."""
    asker = FakeAsker(*said)
    troubles: list[str] = []
    watch = Watch(asker, "http://h", 0.0, lambda: troubles.append(watch.scene.trouble))
    asker.watch = watch
    watch.start()
    watch.join(30)
    return watch, troubles


def test_a_service_that_is_gone_is_asked_again_and_its_last_figures_stay() -> None:
    gone = LookError("Connection refused")
    watch, troubles = watched(gone, answer(rule("a")), gone, gone, answer(rule("b")))
    assert [bool(one) for one in troubles] == [True, False, True, True, False]
    assert "http://h does not say how it stands: Connection refused; trying again" in troubles
    assert watch.scene.live is not None
    assert watch.scene.earlier is not None
    assert [one.rule_id for one in watch.scene.live.rules] == ["b"]
    assert [one.rule_id for one in watch.scene.earlier.rules] == ["a"]
    assert watch.final is None


def test_who_is_refused_at_once_is_refused_for_good_but_not_later() -> None:
    wrong = LookError("the token is wrong", is_final=True)
    assert watched(wrong)[0].final is wrong
    assert watched(answer(), wrong)[0].final is None
