"""The frame that all commands share: usage, exit status, streams."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from headgate import __version__, cli
from headgate.cli import main
from headgate.cli.command import Command, ExitStatus, Parser, argument, whole_number
from headgate.errors import StoreError

TODAY = Path(__file__).parents[3] / "examples" / "traces" / "today.yaml"
COMMANDS = [command.name for command in cli._COMMANDS]


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"headgate {__version__}\n"


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_every_help_has_an_example(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    assert "example" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv", [["keyz"], ["keys", "--nonsense"], ["keys", "a", "b"], ["--stor", "x", "keys"]]
)
def test_wrong_usage_is_one_line_and_status_2(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "--help" in printed.err


@pytest.mark.parametrize("group", [[], ["rules"], ["gateway"]])
def test_without_a_command_the_help_is_printed(
    group: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*group, "--help"]) == 0
    expected = capsys.readouterr().out
    assert main(group) == 2
    assert capsys.readouterr() == (expected, "")


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["keyz"], "unknown command 'keyz' (did you mean keys?); see headgate --help"),
        (["rules", "chekc"], "(did you mean check?); see headgate rules --help"),
        (["keys", "--stoer=x"], "--stoer=x (did you mean --store?); see headgate keys --help"),
        (["serve", "--envoyconfig", "x"], "(did you mean --envoy-config?)"),
        (["size", "--way", "htp"], "argument --way: unknown value 'htp' (did you mean http?)"),
        (["gateway", "xyz"], "unknown command 'xyz'; expected config"),
    ],
)
def test_the_nearest_word_is_suggested(
    argv: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    assert hint in capsys.readouterr().err


def test_an_option_that_resembles_none_gets_no_suggestion(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["keys", "--version"]) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_help_imports_neither_rich_nor_the_settings() -> None:
    code = (
        "import sys; from headgate.cli import main; main(['--help']); "
        "print({'rich', 'yaml', 'headgate.config'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stderr == "set()\n"


@pytest.mark.parametrize(
    "argv",
    [
        ["redis://:sesame@host"],
        ["keys", "--stor", "redis://:sesame@host"],
        ["keys", "redis://:sesame@host"],
        ["keys", "a", "redis://:sesame@host"],
        ["keys", "--limit", "redis://user:sesame"],
        ["keys", "--store", "redis://user:sesame"],
        ["keys", "--store", "mongo://user:sesame@host"],
        ["keys", "--store", "redis://:ses/ame@host"],
        ["keys", "--store", "sesame"],
    ],
)
def test_no_message_repeats_a_password(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert "ame" not in capsys.readouterr().err.replace("name", "")


class TestSettings:
    @staticmethod
    def read(argv: Sequence[str] = ()) -> object:
        size = argument(
            "--size", "N", "how large", variable="HEADGATE_SIZE", type=whole_number, default=1
        )
        return Parser(Command("test", "", (size,)), prog="test").parse_args(argv).size

    def test_a_flag_goes_over_a_variable_over_the_default(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("HEADGATE_SIZE", raising=False)
        assert self.read() == 1
        monkeypatch.setenv("HEADGATE_SIZE", "")
        assert self.read() == 1
        monkeypatch.setenv("HEADGATE_SIZE", "2")
        assert self.read() == 2
        assert self.read(["--size", "3"]) == 3

    def test_a_variable_is_checked_as_a_flag_is(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("HEADGATE_SIZE", "many")
        with pytest.raises(SystemExit):
            self.read()
        assert "'many' is not a whole number" in capsys.readouterr().err

    @pytest.mark.parametrize("text", ["0", "-1", "1.5", "", "٣", "1_0", "9" * 99])
    def test_what_is_no_whole_number_is_refused(self, text: str) -> None:
        with pytest.raises(Exception, match="not a whole number"):
            whole_number(text)


class TestEnding:
    @staticmethod
    def ends(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
        def run(_: object) -> ExitStatus:
            raise error

        command = Command("fail", "", run=run)
        monkeypatch.setattr(cli, "_COMMANDS", (command,))
        return main(["fail"])

    def test_an_error_of_ours_is_one_line(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.ends(monkeypatch, StoreError("no\nanswer")) == 2
        assert capsys.readouterr().err == "headgate fail: no answer\n"

    def test_an_interrupt_is_no_traceback(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.ends(monkeypatch, KeyboardInterrupt()) == 130

    def test_a_full_disk_is_one_line(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.ends(monkeypatch, OSError(28, "No space left on device")) == 2
        assert "cannot write: No space left" in capsys.readouterr().err

    def test_a_bug_is_not_hidden(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(ZeroDivisionError):
            self.ends(monkeypatch, ZeroDivisionError())


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run *line*, in which `$headgate` is the command."""
    command = f"{sys.executable} -m headgate.cli"
    call = ["sh", "-c", line.replace("$headgate", command)]
    return subprocess.run(call, capture_output=True, text=True, check=False)  # noqa: S603


class TestStreams:
    def test_a_reader_who_leaves_is_no_traceback(self) -> None:
        done = shell("($headgate --help; echo $? >&2) | true")
        assert (done.stdout, done.stderr) == ("", "0\n")

    def test_a_closed_stdout_is_no_traceback(self) -> None:
        done = shell("$headgate --version >&-")
        assert (done.returncode, done.stderr) == (0, "")

    @pytest.mark.parametrize(
        "argv",
        [
            ["simulate", str(TODAY), "--workload", "steady"],
            ["loadtest", "http://127.0.0.1:1/", "--rule", "5/s", "--duration", "1m"],
            ["keys", "--store", "redis://127.0.0.1:1"],
        ],
    )
    def test_a_command_without_rich_names_the_extra_before_it_begins(self, argv: list[str]) -> None:
        code = (
            "import sys; sys.modules['rich'] = None; from headgate.cli import main; "
            f"sys.exit(main({argv!r}))"
        )
        call = [sys.executable, "-c", code]
        done = subprocess.run(call, capture_output=True, text=True, check=False)  # noqa: S603
        assert done.returncode == 2
        assert done.stderr.endswith("needs the package 'rich': pip install 'headgate[cli]'\n")
        assert done.stderr.count("\n") == 1

    def test_a_missing_extra_is_named(self) -> None:
        code = (
            "import sys; sys.modules['hiredis'] = None; from headgate.cli import main; "
            "sys.exit(main(['keys', '--store', 'redis://host']))"
        )
        call = [sys.executable, "-c", code]
        done = subprocess.run(call, capture_output=True, text=True, check=False)  # noqa: S603
        assert done.returncode == 2
        assert "pip install 'headgate[redis]'" in done.stderr
        assert done.stderr.count("\n") == 1
