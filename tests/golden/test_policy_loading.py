"""Loaded policies: the form of good ones, and the places of problems in data without lines."""

import json
from typing import Any

from headgate.policy.loader import examine_policies, examine_policy_data, policy_to_data
from headgate.policy.problems import Problem
from tests.golden.command_line import CORPUS, ROOT
from tests.golden.recorder import check_text, check_wire

FOLDERS = ("examples", "deploy", "tests/golden/corpus")


def place(problem: Problem) -> str:
    at = "" if problem.line is None else f" {problem.line}:{problem.column}"
    rule = "" if problem.rule is None else f" rule={problem.rule}"
    return f"{problem.severity}{at}{rule} field={problem.field}"


def test_good_files_load_to_their_recorded_form() -> None:
    loaded: dict[str, Any] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.yaml")):
            text = path.read_text("utf-8")
            name = str(path.relative_to(ROOT))
            if "\nrules:" in text:
                policy = examine_policies([(name, text)]).policy
                loaded[name] = None if policy is None else policy_to_data(policy)
    check_wire("policies_loaded", loaded)


def test_data_loads_or_is_rejected_as_recorded() -> None:
    corpus = json.loads((CORPUS / "policy_data.json").read_text("utf-8"))
    wire: list[dict[str, Any]] = []
    text = []
    for number, data in enumerate(corpus):
        examined = examine_policy_data(data)
        found: dict[str, Any] = {"data": number}
        if examined.problems:
            found["problems"] = [place(problem) for problem in examined.problems]
        if examined.policy is not None:
            found["policy"] = policy_to_data(examined.policy)
            del found["policy"]["identity"]
        wire.append(found)
        told = "".join(f"{problem}\n" for problem in examined.problems)
        text.append(f"=== {number} {json.dumps(data)[:200]}\n{told}")
    check_wire("policy_data", wire)
    check_text("policy_data", "".join(text))


def test_texts_load_or_are_rejected_as_recorded() -> None:
    wire: list[Any] = []
    text = []
    for number, written in enumerate(json.loads((CORPUS / "policy_texts.json").read_text("utf-8"))):
        examined = examine_policies([("rules.yaml", written)])
        wire.append(
            {
                "text": number,
                "loads": examined.policy is not None,
                "problems": [place(problem) for problem in examined.problems],
            }
        )
        told = "".join(f"{problem}\n" for problem in examined.problems)
        text.append(f"=== {number}\n{told}")
    check_wire("policy_texts", wire)
    check_text("policy_texts", "".join(text))
