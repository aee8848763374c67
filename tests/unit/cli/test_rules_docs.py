"""The runs of `headgate rules` that docs/cli.md shows are real."""

from __future__ import annotations

import io
import re
import shlex
import sys
from pathlib import Path

import pytest

from headgate.cli import main

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## `headgate rules`")[2]
POLICY = re.findall(r"```yaml\n(version: 1\n.*?)```", SECTION, re.DOTALL)[0]
BLOCKS = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)
RUNS = [
    (command, shown.strip())
    for block in BLOCKS
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    if " rules.yaml" in command and shown
    if "import-envoy" not in command
]


def test_there_are_runs() -> None:
    assert {re.findall("rules (check|explain)", command)[0] for command, _ in RUNS} == {
        "check",
        "explain",
    }


@pytest.mark.parametrize(("command", "shown"), RUNS, ids=[command for command, _ in RUNS])
def test_a_run_is_as_shown(
    command: str,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("HEADGATE_STORE", "HEADGATE_NAMESPACE", "HEADGATE_SALT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.yaml").write_text(POLICY)
    edit, _, call = command.rpartition(" | ")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(_edited(edit).encode())))
    main(shlex.split(call)[1:])
    assert _timeless(capsys.readouterr().out.strip()) == _timeless(shown)


def _edited(command: str) -> str:
    """What `sed 's/old/new/; ...' rules.yaml` prints."""
    text: str = POLICY
    for old, new in re.findall(r"s/([^/]*)/([^/]*)/", command):
        text = re.sub(f"^(.*?){old}", rf"\1{new}", text, flags=re.MULTILINE)
    return text


def _timeless(text: str) -> str:
    return re.sub(r"(X-RateLimit-Reset:) \d+", r"\1 ...", text)
