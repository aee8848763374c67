"""`headgate serve`: its help, and what it says before anything is served."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from headgate.cli import main
from headgate.config.service import SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

RULES = "version: 1\nrules:\n  - {id: per-ip, key_by: ip, limit: 5/hour}\n"


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("HEADGATE_"):
            monkeypatch.delenv(name)
    (tmp_path / "rules.yaml").write_text(RULES)


def test_the_help_has_every_flag_its_variable_and_an_example(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["serve", "--help-all"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    for one in SETTINGS:
        if one.flag is not None:
            assert f"{one.flag} " in told
            assert f"[{one.variable}]" in told
    assert "headgate serve --rules rules.yaml" in told


def test_secrets_cannot_be_flags(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--admin-token", "--salt", "--secret"):
        assert main(["serve", "--rules", "rules.yaml", flag, "hunter2"]) == 2
    assert "unrecognized" in capsys.readouterr().err


class TestCheck:
    def test_all_is_well(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["serve", "--rules", "rules.yaml", "--check"]) == 0
        assert capsys.readouterr().out.endswith("rules.yaml: 1 rule\nthe configuration is valid\n")

    def test_programs_are_told_in_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["serve", "--rules", "rules.yaml", "--check", "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report == {"ok": True, "messages": ["rules.yaml: 1 rule"]}
        assert main(["serve", "--check", "--json"]) == 2
        assert json.loads(capsys.readouterr().out)[0]["where"] == "rules"

    def test_bad_rules_are_the_answer_no(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "rules.yaml").write_text(RULES.replace("5/hour", "5/hou"))
        assert main(["serve", "--rules", "rules.yaml", "--check"]) == 1
        assert "rules.yaml:3:" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("flags", "told"),
        [
            (("--store", "reddis://x"), "did you mean 'redis://'?"),
            (("--http-tls-cert", "no.pem", "--http-tls-key", "no.pem"), "no.pem"),
            (("--rules", "etcd://"), "etcd"),
            (("--salt-file", "nowhere"), "nowhere: cannot be read"),
        ],
    )
    def test_what_could_not_be_used_is_wrong_usage(
        self, flags: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["serve", "--rules", "rules.yaml", *flags, "--check"]) == 2
        assert told in capsys.readouterr().err

    def test_envoys_configuration_is_read_too(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "envoy").mkdir()
        file = tmp_path / "envoy" / "shop.yaml"
        file.write_text("domain: shop\ndescriptors: []\n")
        assert main(["serve", "--envoy-config", "envoy", "--check"]) == 0
        assert "envoy: 1 domain\n" in capsys.readouterr().out
        file.write_text("domain: shop\ndescriptors: {}\n")
        assert main(["serve", "--envoy-config", "envoy", "--check"]) == 1
