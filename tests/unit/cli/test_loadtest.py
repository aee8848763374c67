"""What `headgate loadtest` refuses before it sends anything, and whom it asks."""

from __future__ import annotations

import io
import sys
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from headgate.cli import main
from headgate.cli.command import time_ns
from headgate.cli.loadtest import _rate, ask
from headgate.errors import OptionError
from headgate.loadtest.target import Load, Target
from headgate.units import MILLISECOND, SECOND

if TYPE_CHECKING:
    from pathlib import Path

HERE = "http://127.0.0.1:1/"
FAR = Target("http://192.0.2.1/api")
LOAD = Load(Fraction(200))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([HERE], "--rule"),
        ([HERE, "--rule", "per-key"], "expected a limit such as 100/s, or the id of a rule"),
        ([HERE, "--rule", "100/fortnight"], "not a limit"),
        ([HERE, "--rule", "5/s", "--tier", "paid"], "expected --rules or --admin"),
        ([HERE, "--rule", "5/s", "--token-file", "x"], "expected --admin URL"),
        ([HERE, "--rule", "a", "--rules", "x", "--admin", "http://a"], "give one of them"),
        ([HERE, "--rule", "a", "--admin", "http://127.0.0.1:1"], "no admin token"),
        ([HERE, "--rule", "5/s", "--cost", "6"], "expected 1 to 5"),
        ([HERE, "--rule", "5/s", "--duration", "long"], "not a time such as 10s"),
        ([HERE, "--rule", "5/s", "--duration", "2 minutes"], "--yes raises that"),
        ([HERE, "--rule", "5/s", "--rate", "30000", "--yes"], "the bounds are 20,000/s"),
        ([HERE, "--rule", "5/s", "--rate", "fast"], "expected one such as 200/s"),
        ([HERE, "--rule", "50000/s"], "the rate is 110,000/s"),
        ([HERE, "--rule", "5/s", "--ok", "429"], "cannot count as allowed"),
        ([HERE, "--rule", "5/s", "--header", "x-api-key"], "expected NAME:VALUE"),
        ([HERE, "--rule", "5/s", "--header", "a b: c"], "expected NAME:VALUE"),
        ([HERE, "--rule", "5/s", "--header", "Content-Length: x"], "follows from the data"),
        ([HERE, "--rule", "5/s", "--key-header", "k"], "expected x-api-key=loadtest-{n}"),
        ([HERE, "--rule", "5/s", "--callers", "2"], "expected {n}"),
        ([HERE, "--rule", "5/s", "--data", "@/no/such/file"], "cannot be read"),
        ([HERE, "--rule", "5/s", "--method", "a b"], "expected one such as POST"),
        (["localhost:8080", "--rule", "5/s"], "expected one such as http://127.0.0.1:8080/path"),
        ([FAR.url, "--rule", "5/s"], "is not this machine"),
        ([FAR.url, "--rule", "5/s", "--yes"], "is not this machine"),
        ([FAR.url, "--rule", "5/s", "--yes-really", "127.0.0.1"], "--yes-really names"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(
    argv: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HEADGATE_ADMIN_TOKEN", raising=False)
    assert main(["loadtest", *argv]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert (printed.out, printed.err.count("\n")) == ("", 1)


def test_a_rule_that_the_policy_does_not_have_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("version: 1\nrules:\n  - {id: a, key_by: ip, limit: 1/s}\n", encoding="utf-8")
    assert main(["loadtest", HERE, "--rule", "b", "--rules", str(path)]) == 2
    assert "there is no rule 'b'; expected one of a" in capsys.readouterr().err


def test_an_admin_api_that_is_not_there_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_ADMIN_TOKEN", "sesame")
    assert main(["loadtest", HERE, "--rule", "a", "--admin", "http://127.0.0.1:1"]) == 2
    told = capsys.readouterr().err
    assert "Connection refused" in told
    assert "sesame" not in told


@pytest.mark.parametrize(
    "url", ["http://[", "http://127.0.0.1:x", "http://127.0.0.1/ a", "ftp://a", "127.0.0.1:8090"]
)
def test_an_admin_url_that_cannot_be_asked_is_told(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_ADMIN_TOKEN", "sesame")
    assert main(["loadtest", HERE, "--rule", "a", "--admin", url]) == 2
    told = capsys.readouterr().err
    assert "--admin is not the URL of a service; expected http://127.0.0.1:8090" in told


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch, typed: str = "") -> Terminal:
    """Sit somebody at a terminal who types that; what is shown there."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    monkeypatch.setattr(sys, "stderr", shown)
    return shown


class TestAHostThatIsNotThisMachine:
    def test_is_asked_about_by_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shown = terminal(monkeypatch, "192.0.2.1\n")
        ask(FAR, LOAD, None)
        assert "about 2,000 requests to 192.0.2.1 in 10 s" in shown.getvalue()

    @pytest.mark.parametrize("answer", ["", "\n", "y\n", "yes\n", "192.0.2.2\n"])
    def test_is_left_alone_after_any_other_answer(
        self, answer: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        terminal(monkeypatch, answer)
        with pytest.raises(OptionError, match="nothing was sent"):
            ask(FAR, LOAD, None)

    def test_can_be_named_beforehand(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shown = terminal(monkeypatch)
        ask(FAR, LOAD, "192.0.2.1")
        assert shown.getvalue() == ""

    def test_is_left_alone_if_there_is_nobody_to_ask(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal(monkeypatch)
        monkeypatch.setattr(sys, "stdin", io.StringIO("192.0.2.1\n"))
        with pytest.raises(OptionError, match="--yes-really 192"):
            ask(FAR, LOAD, None)
        for name in ("stdin", "stderr"):
            monkeypatch.setattr(sys, name, None)
            with pytest.raises(OptionError, match="no terminal"):
                ask(FAR, LOAD, None)


def test_times_and_rates_are_read_as_people_write_them() -> None:
    assert [time_ns(text) for text in ("10s", "500ms", "1.5 seconds", "1m")] == [
        10 * SECOND,
        500 * MILLISECOND,
        1_500 * MILLISECOND,
        60 * SECOND,
    ]
    assert [_rate(text) for text in ("200", "200/s", "30/minute")] == [200, 200, Fraction(1, 2)]
