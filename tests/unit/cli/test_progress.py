"""Progress is for people at a terminal only."""

import io
import os
import sys

import pytest

from headgate.cli.terminal import ProgressBar, StatusLine
from headgate.testing import ManualClock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal in the place of stderr. (Not a fixture: pytest replaces stderr after it.)"""
    found = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", found)
    return found


def progress(terminal: Terminal, count: int, share: float | None) -> str:
    clock = ManualClock()
    bar = ProgressBar("rules.yaml", clock=lambda: clock.now)
    clock.advance(1.0)
    bar(count, share)
    return terminal.getvalue()


def test_the_bar_shows_share_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    shown = progress(terminal, 250_000, 0.25)
    assert "rules.yaml" in shown
    assert " 25%" in shown
    assert "250,000 requests, 250,000/s, 3s left" in shown


def test_without_a_known_end_there_is_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    shown = progress(terminal, 10, None)
    assert "10 requests, 10/s" in shown
    assert "%" not in shown
    assert "left" not in shown


def test_it_is_drawn_a_few_times_a_second_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    clock = ManualClock()
    bar = ProgressBar("a", clock=lambda: clock.now)
    for count in range(100):
        clock.advance(0.01)
        bar(count, count / 100)
    bar.clear()
    assert 5 <= terminal.getvalue().count("requests") <= 10
    assert terminal.getvalue().endswith("\x1b[1A\x1b[2K"), "the line is erased"


def test_nothing_is_shown_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    line = StatusLine()
    line.show("a")
    line.clear()
    assert (line.is_visible, stream.getvalue()) == (False, "")


def test_nothing_is_shown_on_a_dumb_terminal_or_without_rich(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = open_terminal(monkeypatch)
    assert StatusLine().is_visible
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "rich.live", None)
        assert not StatusLine().is_visible
    monkeypatch.setitem(os.environ, "TERM", "dumb")
    assert not ProgressBar("a").is_visible
    assert terminal.getvalue() == ""


def test_a_closed_stderr_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    line = StatusLine()
    line.show("a")
    line.clear()
    assert not line.is_visible


def test_a_terminal_that_goes_away_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = open_terminal(monkeypatch)

    def fail(_: str) -> int:
        raise OSError(5, "input/output error")

    line = StatusLine()
    monkeypatch.setattr(terminal, "write", fail)
    line.show("a")
    assert not line.is_visible
    line.clear()
