"""`headgate rules check`, `schema` and `import-envoy`."""

from __future__ import annotations

import io
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest

from headgate.cli import main
from headgate.gateway.envoy.envoy_limits import MOST_CALLERS
from headgate.policy.loader import read_policy

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """\
version: 1
rules:
  - id: login
    match: {endpoint: /login, method: POST}
    key_by: ip
    limit: 5/minute
"""
WARNED = GOOD + "    mode: 'off'\n"
BAD = """\
version: 1
rules:
  - id: login
    match: {endpoint: /login, methd: POST}
    key_by: ip
    limit: 5/minut
"""
ENVOY = """\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 10}
  - key: path
    value: /foo*
    rate_limit: {unit: day, requests_per_unit: 5}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `headgate rules` with arguments: its status, stdout and stderr."""

    def run(*argv: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return main(["rules", *argv]), *capsys.readouterr()

    return run


@pytest.mark.parametrize("command", ["check", "explain", "schema", "import-envoy"])
def test_every_command_has_help_with_an_example(command: str, told: Any) -> None:
    status, out, _ = told(command, "--help")
    assert status == 0
    assert f"headgate rules {command}" in out.partition("example")[2]


@pytest.mark.parametrize("argv", [["chek"], ["check"], ["schema", "x"], ["explain", "x"]])
def test_wrong_usage_is_one_line(argv: list[str], told: Any) -> None:
    status, out, err = told(*argv)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "--help" in err


class TestCheck:
    def test_a_good_policy_is_one_line(self, here: Path, told: Any) -> None:
        (here / "rules.yaml").write_text(GOOD)
        assert told("check", "rules.yaml") == (0, "rules.yaml: 1 rule, no problems\n", "")

    def test_every_problem_has_its_place(self, here: Path, told: Any) -> None:
        (here / "rules.yaml").write_text(BAD)
        status, out, err = told("check", "rules.yaml")
        first, second, summary = out.splitlines()
        assert (status, err) == (1, "")
        assert first.startswith("rules.yaml:4:31: error: rule 'login', field 'match.methd'")
        assert "did you mean 'method'?" in first
        assert second.startswith("rules.yaml:6:14: error: ")
        assert summary == "rules.yaml: 2 errors"

    def test_a_terminal_shows_the_mistake_in_colours_within_its_width(
        self, here: Path, told: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (here / "rules.yaml").write_text(BAD.replace("login", "a-rule-with-a-long-name"))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "30")
        out = told("check", "rules.yaml")[1]
        plain = re.sub(r"\x1b\[[0-9;]*m", "", out)
        first, line, caret = plain.splitlines()[:3]
        assert first.startswith("rules.yaml:4:49: error: rule 'a-rule-with-a-long-name'")
        assert line[caret.index("^") :].startswith("methd: POST")
        assert max(map(len, (line, caret))) <= 30
        assert "\x1b[1;31merror\x1b[0m" in out
        monkeypatch.setenv("NO_COLOR", "1")
        assert told("check", "rules.yaml")[1] == plain

    def test_warnings_count_only_if_strict(self, here: Path, told: Any) -> None:
        (here / "rules.yaml").write_text(WARNED)
        status, out, _ = told("check", "rules.yaml")
        assert (status, out.splitlines()[-1]) == (0, "rules.yaml: 1 rule, 1 warning")
        assert told("check", "rules.yaml", "--strict")[0] == 1
        (here / "rules.yaml").write_text(GOOD)
        assert told("check", "rules.yaml", "--strict")[0] == 0

    def test_a_directory_is_one_policy(self, here: Path, told: Any) -> None:
        (here / "b.json").write_text(json.dumps({"version": 1, "rules": []}))
        (here / "a.yaml").write_text(GOOD)
        (here / "notes.txt").write_text("not a policy")
        assert told("check", ".") == (0, ".: 1 rule in 2 files, no problems\n", "")
        (here / "c.yml").write_text(GOOD)
        status, out, _ = told("check", ".")
        assert status == 1
        assert out.startswith("c.yml:3:9: error: rule 'login', field 'id'")
        assert "a.yaml:3" in out

    def test_it_states_what_an_idempotency_key_is_free_for(self, here: Path, told: Any) -> None:
        (here / "rules.yaml").write_text(GOOD + "    idempotency: {fingerprint: content-digest}\n")
        status, out, _ = told("check", "rules.yaml", "--strict")
        free = "a key is free for up to 10 retries with the same content-digest within 1d"
        note = f"note: rule 'login', field 'idempotency': {free}"
        assert (status, out.splitlines()) == (0, [note, "rules.yaml: 1 rule, no problems"])

    def test_it_states_how_many_callers_a_local_rule_remembers(self, here: Path, told: Any) -> None:
        (here / "rules.yaml").write_text(GOOD + "    decide: local\n")
        status, out, _ = told("check", "rules.yaml", "--strict")
        note, last = out.splitlines()
        assert note.startswith("note: rule 'login', field 'decide': each gateway remembers the")
        assert f"{MOST_CALLERS:,} callers" in note
        assert (status, last) == (0, "rules.yaml: 1 rule, no problems")

    def test_what_is_piped_in_is_checked(
        self, here: Path, told: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
        assert told("check", "-") == (0, "<stdin>: 1 rule, no problems\n", "")
        monkeypatch.setattr(sys, "stdin", None)
        status, out, err = told("check", "-")
        assert (status, out) == (2, "")
        assert "it is closed" in err

    @pytest.mark.parametrize("path", ["missing.yaml", ".", "a\0b"])
    def test_what_cannot_be_read_is_one_line(self, path: str, here: Path, told: Any) -> None:
        status, out, err = told("check", path)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("headgate rules check: ")

    def test_json_is_the_list_of_problems(self, here: Path, told: Any) -> None:
        (here / "rules.yaml").write_text(BAD)
        status, out, _ = told("check", "rules.yaml", "--json")
        problems = json.loads(out)
        assert status == 1
        assert [problem["line"] for problem in problems] == [4, 6]
        assert problems[0]["hint"] == "did you mean 'method'?"
        (here / "rules.yaml").write_text(GOOD)
        assert told("check", "rules.yaml", "--json") == (0, "[]\n", "")

    def test_nothing_is_printed_that_a_terminal_would_obey(self, here: Path, told: Any) -> None:
        name = "a\x1b[31m.yaml"
        (here / name).write_text(BAD)
        assert "\x1b" not in told("check", name)[1]
        assert "\x1b" not in told("check", f"no {name}")[2]


def test_the_schema_is_json(told: Any) -> None:
    status, out, err = told("schema")
    assert (status, err) == (0, "")
    assert json.loads(out)["$schema"].startswith("https://json-schema.org/")


class TestImport:
    def test_the_policy_goes_to_stdout_and_warnings_to_stderr(self, here: Path, told: Any) -> None:
        (here / "shop.yaml").write_text(ENVOY)
        status, out, err = told("import-envoy", ".")
        assert status == 0
        assert err.startswith("shop.yaml:5:5: warning: ")
        policy = read_policy(out)
        assert [str(rule.limits[None][0]) for rule in policy.rules] == ["10/m fixed_window"]

    def test_all_errors_are_told(self, here: Path, told: Any) -> None:
        (here / "a.yaml").write_text("domain: a\ndescriptors: [{kee: 1}]\n")
        (here / "b.yaml").write_text("descriptors: []\n")
        status, out, err = told("import-envoy", ".")
        assert (status, out) == (1, "")
        assert "a.yaml:2:" in err
        assert "b.yaml:" in err

    def test_one_domain_in_two_files_is_an_error_unless_merged(self, here: Path, told: Any) -> None:
        (here / "a.yaml").write_text(ENVOY)
        (here / "b.yaml").write_text(ENVOY.replace("user", "team").replace("/foo", "/bar"))
        assert told("import-envoy", ".")[0] == 1
        status, out, _ = told("import-envoy", ".", "--merge-domains")
        assert (status, len(read_policy(out).rules)) == (0, 2)

    def test_a_file_is_replaced_only_by_force(self, here: Path, told: Any) -> None:
        (here / "shop.yaml").write_text(ENVOY)
        output = ["import-envoy", "shop.yaml", "--output", "rules.yml"]
        status, out, _ = told(*output)
        assert (status, out) == (0, "")
        made = (here / "rules.yml").read_text()
        assert read_policy(made).rules
        (here / "rules.yml").write_text("mine")
        status, out, err = told(*output)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert "--force" in err
        assert (here / "rules.yml").read_text() == "mine"
        (here / "rules.yml").chmod(0o600)
        assert told(*output, "--force")[0] == 0
        assert (here / "rules.yml").read_text() == made
        assert (here / "rules.yml").stat().st_mode & 0o777 == 0o600
        assert {file.name for file in here.iterdir()} == {"shop.yaml", "rules.yml"}

    def test_what_cannot_be_written_is_one_line(self, here: Path, told: Any) -> None:
        (here / "shop.yaml").write_text(ENVOY.rpartition("  - key")[0])
        for target in ("no/where.yaml", "shop.yaml/x"):
            status, out, err = told("import-envoy", "shop.yaml", "--output", target)
            assert (status, out, err.count("\n")) == (2, "", 1)
        (here / "full").mkdir()
        status, _, err = told("import-envoy", "shop.yaml", "--output", "full", "--force")
        assert (status, err.count("\n")) == (2, 1)
        assert {file.name for file in here.iterdir()} == {"shop.yaml", "full"}
