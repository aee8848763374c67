"""Completion scripts, as their shells run them."""

import subprocess

import pytest

from headgate.cli import main, root_parser
from headgate.cli.completion import bash_script, fish_script, zsh_script

ASK = """
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_headgate
echo "${COMPREPLY[*]}"
"""


def completed(*words: str) -> list[str]:
    """The words that bash offers for the last of *words*."""
    script = bash_script(root_parser()) + ASK
    done = subprocess.run(  # noqa: S603
        ["bash", "-uc", script, "-", *words],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("headgate", "ru"), ["rules"]),
        (("headgate", "rules", "ch"), ["check"]),
        (("headgate", "rules", "check", "--s"), ["--strict"]),
        (("headgate", "keys", "--store", "redis://h", "--n"), ["--namespace"]),
        (("headgate", "size", "--way", ""), ["http", "rls"]),
        (("headgate", "completion", "z"), ["zsh"]),
        (("headgate", "keys", "user"), []),
    ],
)
def test_bash_offers_commands_options_and_values(
    words: tuple[str, ...], offered: list[str]
) -> None:
    assert completed(*words) == offered


def test_bash_offers_every_command_first() -> None:
    offered = completed("headgate", "")
    assert {*root_parser().subparsers(), "--help", "--version"} <= set(offered)


def test_zsh_knows_the_same_words() -> None:
    script = zsh_script(root_parser())
    assert script.startswith("#compdef headgate\n")
    assert '"headgate size --way") found="http rls" ;;' in script


def test_fish_has_a_line_for_each_word() -> None:
    lines = fish_script(root_parser()).splitlines()
    (way,) = [line for line in lines if line.endswith("-l way -x -a 'http rls'")]
    assert "__fish_seen_subcommand_from size" in way
    assert [line for line in lines if line.endswith("-f -a check")]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "headgate" in capsys.readouterr().out
