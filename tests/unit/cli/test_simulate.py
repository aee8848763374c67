"""What `headgate simulate` takes, prints and ends with."""

import io
import json
from pathlib import Path

import pytest

from headgate.cli import main

RULES = """\
version: 1
rules:
  - id: per-key
    key_by: api_key
    limit: 2/minute fixed_window
"""
TRACE = "time,path,x-api-key\n" + "".join(f"{1763320000 + n},/a,ann\n" for n in range(4))


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rules.yaml").write_text(RULES)
    Path("looser.yaml").write_text(RULES.replace("2/", "3/"))
    Path("trace.csv").write_text(TRACE)


def test_people_are_told_who_would_have_been_limited(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "rules.yaml", "trace.csv", "--keys", "clear"]) == 0
    printed = capsys.readouterr()
    assert "per-key" in printed.out
    assert "api_key=ann" in printed.out
    assert printed.err == ""


def test_a_note_is_told_once_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    when = "192.0.2.1 - - [16/Nov/2026:19:06:40 +0000]"
    Path("access.log").write_text(
        f'{when} "GET /a HTTP/1.1" 200 1 "-" "-"\n{when} "\\x16\\x03\\x01" 400 1 "-" "-"\n'
    )
    assert main(["simulate", "rules.yaml", "access.log"]) == 0
    assert capsys.readouterr().out.count("are invalid") == 1


def test_programs_are_told_all_figures_of_both_policies(
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["rules.yaml", "trace.csv", "--against", "looser.yaml", "--json", "--step", "1s"]
    assert main(["simulate", *argv]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["policy_name"] for one in told] == ["rules.yaml", "looser.yaml"]
    assert [one["denied"] for one in told] == [2, 1]
    assert told[0]["denied_series"] == [0, 0, 1, 1]


def test_a_page_with_plots_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["rules.yaml", "trace.csv", "--html", "report.html"]
    assert main(["simulate", *argv]) == 0
    assert "per-key" in Path("report.html").read_text()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("most", "status"), [("50%", 0), ("49%", 1), ("0.5", 0), ("0", 1)])
def test_it_fails_if_more_is_denied_than_may_be(
    most: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "rules.yaml", "trace.csv", "--fail-if-denied", most]) == status
    assert ("50.00%" in capsys.readouterr().err) is bool(status)


def test_the_trace_may_be_piped_in(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = io.TextIOWrapper(io.BufferedReader(io.BytesIO(TRACE.encode())))
    monkeypatch.setattr("sys.stdin", piped)
    assert main(["simulate", "rules.yaml", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["requests"] == 4


def test_traffic_is_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--workload", "steady", "--rate", "10", "--duration", "2m", "--callers", "3"]
    assert main(["simulate", "rules.yaml", *argv, "--path", "/a", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)[0]
    assert told["callers"] == 3
    assert 6 <= told["allowed"] <= 18


def test_what_was_not_understood_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("trace.csv").write_text(TRACE + "tomorrow,/a,ann\n")
    assert main(["simulate", "rules.yaml", "trace.csv"]) == 0
    assert "line 6: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["rules.yaml"], "pass either TRACE or --workload"),
        (["rules.yaml", "trace.csv", "--workload", "steady"], "pass either TRACE or --workload"),
        (["rules.yaml", "-", "--against", "looser.yaml"], "instead of stdin"),
        (["rules.yaml", "trace.csv", "--rate", "5"], "--rate is for generated traffic"),
        (["rules.yaml", "nowhere.csv"], "No such file"),
        (["nowhere.yaml", "trace.csv"], "nowhere.yaml"),
        (["rules.yaml", "rules.yaml"], "expected CSV"),
        (["rules.yaml", "trace.csv", "--html", "no/where.html"], "the directory does not exist"),
        (["rules.yaml", "trace.csv", "--step", "soon"], "not a time such as"),
        (["rules.yaml", "trace.csv", "--fail-if-denied", "2"], "not a share such as"),
        (["rules.yaml", "trace.csv", "--header", "x"], "NAME=COLUMN"),
        (["rules.yaml", "--workload", "steady", "--path", "x"], "begins with /"),
    ],
)
def test_what_makes_no_sense_is_rejected_with_what_would(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *argv]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""


def test_a_policy_with_errors_is_not_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rules.yaml").write_text("version: 1\nrules: [{id: a}]\n")
    assert main(["simulate", "rules.yaml", "trace.csv"]) == 2
    assert "is invalid" in capsys.readouterr().err


def test_its_names_are_those_of_the_simulator() -> None:
    from headgate.cli import simulate
    from headgate.simulator import FORMATS, RETRIES, WORKLOADS

    assert (simulate._FORMATS, simulate._RETRIES) == (FORMATS, RETRIES)
    assert tuple(WORKLOADS) == simulate._WORKLOADS
