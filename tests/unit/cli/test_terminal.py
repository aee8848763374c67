"""What a terminal is given."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.terminal import bold, duration, printable, table


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (1, "1ms"),
        (999_000_000, "999ms"),
        (999_000_001, "1s"),
        (1_800_000_000, "1.8s"),
        (1_800_000_001, "1.9s"),
        (59_900_000_000, "59.9s"),
        (59_900_000_001, "1m"),
        (250_000_000_000, "4m10s"),
        (3_600_000_000_000, "1h"),
        (7_500_000_000_000, "2h5m"),
        (273_600_000_000_000, "3d4h"),
    ],
)
def test_a_duration_is_short_and_rounded_up(nanoseconds: int, text: str) -> None:
    assert duration(nanoseconds) == text


@given(st.text())
def test_no_character_moves_the_cursor(text: str) -> None:
    assert printable(text).isprintable()


def test_what_is_escaped_can_be_told_from_what_was_written_so() -> None:
    assert printable("user:é 42") == "user:é 42"
    assert printable("\x1b[31m\n") == r"\x1b[31m\n"
    assert printable(r"\n") == r"\\n"


def test_columns_are_as_wide_as_what_is_in_them() -> None:
    assert table(("A", "B"), [("long", "x"), ("y", "")]) == "A     B\nlong  x\ny"


class TestBold:
    @pytest.fixture(autouse=True)
    def _on_a_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm")

    def test_is_for_terminals_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert bold("x") == "\x1b[1mx\x1b[0m"
        monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
        assert bold("x") == "x"

    @pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
    def test_is_not_for_who_does_not_want_it(
        self, name: str, value: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(name, value)
        assert bold("x") == "x"
