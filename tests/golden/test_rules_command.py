"""`headgate rules`: places of problems, explanations and imports; their wording apart."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.golden.command_line import CORPUS, ROOT, cases, run
from tests.golden.recorder import check_text, check_wire

PROSE = frozenset(
    {"reason", "account", "kept", "outage", "cost_after", "message", "detail", "title"}
)
"""Fields whose text may be reworded."""

REQUESTS = (
    "'POST /login'",
    "'POST /login' --repeat 5",
    "'POST /login' --repeat 6",
    "'POST /login' --ip 198.51.100.9",
    "'POST /login' --ip 198.51.100.8 --repeat 8",
    "'POST /login' --ip 198.51.100.7",
    "'POST /LOGIN/' --ip 2001:db8:1:2:3::4",
    "'POST //x/..//%6cogin;v=1' --ip ::ffff:198.51.100.8",
    "'POST /login' --ip 10.0.0.1 -H 'X-Forwarded-For: 198.51.100.9, 192.0.2.1, 10.2.2.2'",
    "'POST /login' --ip 10.0.0.1 -H 'X-Forwarded-For: nonsense'",
    "'POST /login' -H 'Accept: application/problem+json' --repeat 6",
    "/login",
    "/api",
    "/api/v1/users -H 'x-api-key: sesame'",
    "/api/v1/users -H 'x-api-key: sesame' --tier paid",
    "/api/v1/users -H 'x-api-key: sesame' --tier paid --repeat 101",
    "/api/v1/users -H 'x-api-key: sesame' --tier other",
    "/api/export -H 'x-api-key: sesame' --repeat 2",
    "/api/export --cost 5",
    "/api/export --cost 0",
    "/api --cookie sid=1 --repeat 2",
    "'HEAD /api/v1/users'",
    "'OPTIONS /api/v1/users'",
    "'GET https://a.example.com:8443/api?x=1' -H 'x-api-key: sesame' -H 'x-beta: b'",
    "/ --host A.Example.COM. -H 'x-api-key: sesame' -H 'x-beta: c'",
    "/ --attribute plan=big --cookie sid=7",
    "/ --attribute plan=big --cookie sid=7 --repeat 2",
    "/exports/a -H 'x-tenant-id: t1'",
    "/exports/a -H 'x-tenant-id: t1' --repeat 3",
    "/exports/a -H 'x-tenant-id: t1' --repeat 5",
    "/streams/a -H 'x-tenant-id: t1' --tier paid",
    "/streams/live -H 'x-tenant-id: t1' --repeat 2",
    "'DELETE /streams/a' -H 'x-tenant-id: t1' --repeat 4",
    "'POST /chat' -H 'x-tenant-id: t1'",
    "'POST /chat' -H 'x-tenant-id: t1' -H 'Idempotency-Key: k1' --repeat 2",
    "'POST /chat' -H 'x-tenant-id: t1' --repeat 101",
    "/metered -H 'x-units: 7' --host one.example.org",
    "/metered -H 'x-units: 99' --host one.example.org",
    "/metered -H 'x-units: many' --host one.example.org",
    "/metered -H 'x-units: 15' --host one.example.org --repeat 2",
    "/paced -H 'x-device: d1' --repeat 4",
    "/paced -H 'x-device: d1' --repeat 6",
    "/ --tier closed",
    "/nothing",
)

EXAMPLES = (
    ("public-api.yaml", "'POST /v1/exports' -H 'x-api-key: demo-key-1' --repeat 3"),
    ("public-api.yaml", "'GET /v1/search' -H 'x-api-key: other' --repeat 21"),
    ("public-api.yaml", "'POST /v1/accounts' --ip 2001:db8::1 --repeat 4"),
    ("hourly-quota.yaml", "/search/code -H 'x-user-id: 7' --tier user"),
    ("hourly-quota.yaml", "/rate_limit --repeat 70"),
    ("login.yaml", "'POST /login' --attribute username=ada --ip 192.0.2.7 --repeat 6"),
    ("login.yaml", "'POST /login/code' --attribute username=ada --repeat 4"),
    ("llm-gateway.yaml", "'POST /v1/chat/completions' -H 'x-tenant-id: t' --repeat 3"),
    ("llm-tokens.yaml", "'POST /v1/chat/x' -H 'x-api-key: t' -H 'x-plan: team' --repeat 401"),
    ("fragile-downstream.yaml", "/ledger/reports/1 -H 'x-service-name: s' --repeat 3"),
)

GOOD = sorted(
    str(path.relative_to(ROOT))
    for folder in ("examples", "deploy", "tests/golden/corpus")
    for path in (ROOT / folder).rglob("*.yaml")
    if "\nrules:" in path.read_text(encoding="utf-8")
)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def place(problem: dict[str, Any]) -> str:
    """Where a problem is, without what it says."""
    spot = f"{problem['where']}:{problem['line']}:{problem['column']}"
    rule = "" if problem["rule"] is None else f" rule={problem['rule']}"
    field = f" field={problem['field']}" if problem["field"] else ""
    return f"{problem['severity']} {spot}{rule}{field}"


def wording(problem: dict[str, Any]) -> str:
    """What a problem says."""
    hint = f" ({problem['hint']})" if problem["hint"] else ""
    return f"{problem['severity']} {problem['field']}: {problem['message']}{hint}\n"


def without_prose(value: Any) -> Any:
    """*value* with a mark in place of text that may be reworded."""
    if isinstance(value, list):
        return [without_prose(item) for item in value]
    if isinstance(value, dict):
        return {
            name: "<prose>" if _is_prose(name, item) else without_prose(item)
            for name, item in value.items()
            if name != "soft"
        } | {name: dict.fromkeys(value[name], "<prose>") for name in value if name == "soft"}
    if isinstance(value, str) and value.startswith("{"):
        return without_prose(json.loads(value))
    return value


def _is_prose(name: str, item: object) -> bool:
    return (name in PROSE and bool(item)) or (name == "description" and isinstance(item, str))


def descriptions(value: Any, path: str) -> Iterator[str]:
    """All descriptions in a JSON Schema, each after where it stands."""
    if isinstance(value, dict):
        if isinstance(value.get("description"), str):
            yield f"{path or '/'}: {value['description']}"
        for name, item in value.items():
            yield from descriptions(item, f"{path}/{name}")
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from descriptions(item, f"{path}/{number}")


def printed_place(line: str) -> str:
    """Place and severity of a problem as printed: all that stands before its message."""
    found = re.match(r"(\S+): (error|warning): ", line)
    assert found, line
    return f"{found[2]} {found[1]}"


def test_problems_of_policies_have_their_places(tmp_path: Path) -> None:
    wire: dict[str, object] = {}
    text = []
    for name, policy in cases("policies.txt").items():
        (tmp_path / "rules.yaml").write_text(policy, encoding="utf-8")
        ran = run("rules", "check", "rules.yaml", "--json")
        problems = json.loads(ran.out)
        wire[name] = {"status": ran.status, "problems": [place(found) for found in problems]}
        text.append(f"=== {name}\n" + "".join(map(wording, problems)))
    check_wire("rules_check", wire)
    check_text("rules_check", "".join(text))


def test_the_fields_of_a_problem_keep_their_names_and_types(tmp_path: Path) -> None:
    policy = cases("policies.txt")["accuracy.batch"]
    (found,) = json.loads(run("rules", "check", "-", "--json", typed=policy).out)
    check_wire(
        "rules_check_fields",
        {
            name: value if name not in {"message", "hint"} else "<prose>"
            for name, value in found.items()
        },
    )


def test_policies_that_are_good_have_few_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    wire: dict[str, object] = {}
    text = []
    for path in GOOD:
        for options in ((), ("--strict",)):
            ran = run("rules", "check", path, "--json", *options)
            found = [place(problem) for problem in json.loads(ran.out)]
            wire[" ".join((path, *options))] = {"status": ran.status, "problems": found}
        text.append(run("rules", "check", path).out)
    check_wire("rules_check_good", wire)
    check_text("rules_check_good", "".join(text))


def test_a_folder_is_one_policy(tmp_path: Path) -> None:
    folder = tmp_path / "policies"
    folder.mkdir()
    rule = "  - {{id: {}, key_by: ip, limit: 1/s}}\n"
    (folder / "a.yaml").write_text("version: 1\nrules:\n" + rule.format("one"))
    (folder / "b.yml").write_text("version: 1\nidentity: {}\nrules:\n" + rule.format("two"))
    (folder / "c.json").write_text('{"version": 1, "identity": {}, "rules": [{"id": "one"}]}')
    (folder / "notes.txt").write_text("not read")
    ran = run("rules", "check", "policies", "--json")
    check_wire(
        "rules_check_folder",
        {"status": ran.status, "problems": [place(found) for found in json.loads(ran.out)]},
    )
    check_text(
        "rules_check_folder", run("rules", "check", "policies").as_text("rules check policies")
    )


def test_requests_are_explained() -> None:
    wire: dict[str, object] = {}
    text = []
    path = str(CORPUS / "explain.yaml")
    for number, request in enumerate(REQUESTS):
        asked = shlex.split(request)
        ran = run("rules", "explain", path, *asked, "--json")
        found = without_prose(json.loads(ran.out))
        if number:  # rules that do not match are recorded once
            found["rules"] = [rule for rule in found["rules"] if rule["matches"]]
        wire[request] = {"status": ran.status, **found}
        text.append(run("rules", "explain", path, *asked).as_text(f"rules explain RULES {request}"))
    check_wire("rules_explain", wire)
    check_text("rules_explain", "".join(text))


def test_requests_under_the_example_policies_are_explained() -> None:
    wire: dict[str, object] = {}
    text = []
    for file, request in EXAMPLES:
        path = str(ROOT / "examples/policies" / file)
        ran = run("rules", "explain", path, *shlex.split(request), "--json")
        wire[f"{file} {request}"] = {"status": ran.status, **without_prose(json.loads(ran.out))}
        shown = run("rules", "explain", path, *shlex.split(request), "--all")
        text.append(shown.as_text(f"rules explain {file} {request} --all"))
    check_wire("rules_explain_examples", wire)
    check_text("rules_explain_examples", "".join(text))


def test_explain_hashes_secrets_with_the_salt_of_the_environment() -> None:
    asked = (
        "rules",
        "explain",
        str(CORPUS / "explain.yaml"),
        "/api",
        "-H",
        "x-api-key: k",
        "--json",
    )
    wire = {}
    for salt in ("", "salt"):
        found = json.loads(run(*asked, env={"HEADGATE_SALT": salt}).out)
        wire[f"salt {salt!r}"] = [rule.get("key") for rule in found["rules"] if rule["matches"]]
    check_wire("rules_explain_salt", wire)


def test_the_schema_is_printed() -> None:
    ran = run("rules", "schema")
    assert ran.status == 0
    schema = json.loads(ran.out)
    check_text("rules_schema", "\n".join(descriptions(schema, "")))
    check_wire("rules_schema", without_prose(schema))


def test_limits_of_envoy_are_imported(tmp_path: Path) -> None:
    wire: dict[str, object] = {}
    text = []
    for name, config in cases("envoy.txt").items():
        (tmp_path / "envoy.yaml").write_text(config, encoding="utf-8")
        ran = run("rules", "import-envoy", "envoy.yaml")
        places = [printed_place(line) for line in ran.err.splitlines()]
        wire[name] = {"status": ran.status, "problems": places, "policy": ran.out.splitlines()}
        text.append(f"=== {name}\n{ran.err}")
    check_wire("rules_import_envoy", wire)
    check_text("rules_import_envoy", "".join(text))


def test_several_files_of_envoy_make_one_policy(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    limit = "descriptors: [{key: %s, rate_limit: {unit: day, requests_per_unit: 5}}]\n"
    (folder / "a.yaml").write_text("domain: one\n" + limit % "a")
    (folder / "b.yaml").write_text("domain: two\n" + limit % "a")
    (folder / "c.yaml").write_text("domain: one\n" + limit % "c")
    wire = {}
    for options in ((), ("--merge-domains",)):
        ran = run("rules", "import-envoy", "config", *options)
        places = [printed_place(line) for line in ran.err.splitlines()]
        called = " ".join(("import-envoy", *options))
        wire[called] = {"status": ran.status, "problems": places, "policy": ran.out.splitlines()}
    check_wire("rules_import_envoy_folder", wire)
