"""A bar for people at a terminal, and for nobody else."""

import io
import sys

import pytest

from headgate.cli.terminal import ProgressBar, StatusLine, progress_line
from headgate.testing import ManualClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_tells_share_rate_and_what_is_left() -> None:
    assert progress_line("rules.yaml", 250_000, 0.25, 1.0) == (
        "rules.yaml  [######..................]  25%  250,000 requests, 250,000/s, 0:03 left"
    )
    assert progress_line("a", 10, 0.001, 20.0).endswith(" 5:33:00 left")


def test_without_a_known_end_there_is_no_bar() -> None:
    assert progress_line("a", 10, None, 2.0) == "a  10 requests, 5/s"


def test_it_is_shown_a_few_times_a_second_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    clock, terminal = ManualClock(), Terminal()
    bar = ProgressBar("a", stream=terminal, clock=lambda: clock.now)
    for count in range(100):
        clock.advance(0.01)
        bar(count, count / 100)
    bar.clear()
    shown = terminal.getvalue().split("\r\033[K")
    assert 5 <= len(shown) - 2 <= 10
    assert shown[-1] == ""


def test_where_there_is_no_terminal_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stream = ManualClock(), io.StringIO()
    bar = ProgressBar("a", stream=stream, clock=lambda: clock.now)
    clock.advance(10)
    bar(1, 0.5)
    bar.clear()
    monkeypatch.setenv("TERM", "dumb")
    assert not ProgressBar("a", stream=Terminal()).is_of_use
    assert stream.getvalue() == ""


def test_a_stderr_that_was_closed_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    line = StatusLine()
    line.show("a")
    line.clear()
    assert not line.is_of_use
    assert not ProgressBar("a").is_of_use


def test_a_terminal_that_goes_away_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Terminal):
        def write(self, text: str, /) -> int:
            raise OSError(5, "input/output error")

    monkeypatch.setenv("TERM", "xterm")
    line = StatusLine(Gone())
    assert line.is_of_use
    line.show("a")
    assert not line.is_of_use


def test_a_line_is_never_longer_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    StatusLine(terminal).show("x" * 500)
    assert terminal.getvalue() == "\r\033[K" + "x" * 79
