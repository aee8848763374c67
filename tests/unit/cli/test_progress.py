"""Progress is for people at a terminal only."""

import io
import sys

import pytest

from headgate.terminal import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, share: float | None, term: str = "xterm") -> str:
    """The output on stderr for one update. (Not a fixture: pytest replaces stderr after it.)"""
    found = Terminal()
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", found)
    with progress("[b]rules.yaml") as update:
        update(share, "10 requests")
    return found.getvalue()


def test_the_bar_has_name_share_and_figures_and_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, 0.25)
    assert "[b]rules.yaml" in text
    assert " 25%" in text
    assert "10 requests" in text
    assert text.endswith("\x1b[2K")


def test_without_a_known_end_there_is_no_share(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, None)
    assert "10 requests" in text
    assert "%" not in text


def test_nothing_is_shown_on_a_dumb_terminal_or_without_rich(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shown(monkeypatch, 0.5, term="dumb") == ""
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert shown(monkeypatch, 0.5) == ""


@pytest.mark.parametrize("stream", [io.StringIO(), None], ids=["a file", "closed"])
def test_nothing_is_shown_without_a_terminal(
    stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("a") as update:
        update(0.5, "b")
    assert stream is None or stream.getvalue() == ""
