"""`headgate rules` on rules with costs known afterwards, and with a way for gateways to decide."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from headgate.cli import main

if TYPE_CHECKING:
    from pathlib import Path

RULES = """\
version: 1
rules:
  - {id: llm, key_by: ip, limit: 100/s, cost: {after: {header: x-tokens, per: 10, max: 50}}}
  - {id: traffic, key_by: ip, limit: 100/s, cost: {default: 2, after: {bytes: true}}}
  - {id: plain, key_by: ip, limit: 100/s, decide: quota}
"""


@pytest.fixture
def rules(tmp_path: Path) -> str:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return str(path)


def test_explain_tells_both(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "explain", rules, "/"]) == 0
    llm, traffic, plain = capsys.readouterr().out.split("\n\n")[1:4]
    made = "afterwards  charged by the response:"
    header = "its header x-tokens, one for every 10 begun, at most 50, minus the cost"
    assert f"{made} {header}" in llm
    assert f"{made} the bytes of its body, minus the cost" in traffic
    assert "gateway     enforces the quota that the service assigns (quota)" in plain
    assert "afterwards" not in plain
    assert "gateway" not in llm


def test_explain_has_both_as_data(rules: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "explain", rules, "/", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["rules"]
    assert [one["decide"] for one in found] == [None, None, "quota"]
    assert [one["cost_after"] for one in found] == [
        {"header": "x-tokens", "bytes": False, "per": 10, "max": 50},
        {"header": None, "bytes": True, "per": 1, "max": None},
        None,
    ]


def test_check_names_what_is_wrong_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES.replace("max: 50", "mx: 50").replace("quota", "qota"))
    assert main(["rules", "check", str(path)]) == 1
    told = capsys.readouterr()
    for hint in ("did you mean 'max'?", "did you mean 'quota'?"):
        assert hint in told.out + told.err


def test_the_schema_has_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "schema"]) == 0
    parts = json.loads(capsys.readouterr().out)["$defs"]
    assert parts["RuleDocument"]["properties"]["decide"]["enum"] == ["exact", "quota", "local"]
    assert "after" in parts["Cost"]["properties"]
