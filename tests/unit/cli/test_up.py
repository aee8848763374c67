"""`headgate up`: its help, what it says before anything runs, and what it hands the service."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import pytest

from headgate.cli import main, up
from headgate.config.gateway import SETTINGS as GATEWAY
from headgate.config.service import SETTINGS as SERVICE
from tests.support.logs import restored_logs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headgate.config import Setting
    from headgate.gateway.processes.up import UpOptions

RULES = "version: 1\nrules:\n  - {id: per-ip, key_by: ip, limit: 5/hour}\n"
GOOD = ("up", "--rules", "rules.yaml", "--upstream", "http://127.0.0.1:9000")


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("HEADGATE_"):
            monkeypatch.delenv(name)
    (tmp_path / "rules.yaml").write_text(RULES)


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """Have the logs afterwards as they were: the command makes them its own."""
    with restored_logs():
        yield


def test_the_help_has_every_flag_of_both_its_variable_and_an_example(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["up", "--help-all"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    for one in (*GATEWAY, *SERVICE):
        if one.flag is not None:
            assert f"{one.flag} " in told
            assert f"[{one.variable}]" in told
    assert "headgate up --rules my.yaml --upstream http://localhost:9000" in told


def test_one_file_is_for_both_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "rules: rules.yaml\nupstream: http://127.0.0.1:9000\nlisten: 127.0.0.1:1\n"
    (tmp_path / "headgate.yaml").write_text(told)
    monkeypatch.setenv("HEADGATE_LISTEN", "127.0.0.1:2")
    assert main(["serve", "--config", "headgate.yaml", "--check"]) == 0
    assert capsys.readouterr().out.endswith("1 rule\nthe configuration is valid\n")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("up", "--rules", "rules.yaml"), "pass --upstream"),
        (("up", "--upstream", "http://127.0.0.1:9000"), "there are no rules; give --rules"),
        ((*GOOD, "--listen", "off"), "the gateway would listen nowhere"),
        ((*GOOD, "--listen", "8080"), "'8080' is not an address"),
        ((*GOOD, "--upstream", "http://x:1"), "are for the same requests"),
        ((*GOOD, "--workers", "2"), "2 workers with memory://"),
        ((*GOOD, "--listen-tls-cert", "a"), "listen_tls_key is missing"),
        ((*GOOD, "--grpc-tls-cert", "a", "--grpc-tls-key", "b"), "without TLS"),
        ((*GOOD, "--decide", "fast"), "expected"),
    ],
)
def test_what_makes_no_sense_is_one_line_each(
    flags: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flags]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("headgate up: ")
    assert told in lines[0]


def test_programs_are_told_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--rules", "rules.yaml", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)[0]["where"] == "upstream"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--envoy", "/nowhere/envoy"), "envoy: /nowhere/envoy is not an executable program"),
        (("--run-dir", "."), "it contains other files"),
        (("--run-dir", "x" * 100), "the path is too long for sockets"),
        (("--listen-tls-cert", "a.crt", "--listen-tls-key", "a.key"), "a.crt: cannot read"),
        (("--upstream-ca", "rules.yaml"), "rules.yaml: not a usable PEM file"),
        (("--listen", "192.0.2.1:80"), "cannot listen at 192.0.2.1:80"),
    ],
)
def test_what_cannot_be_run_is_one_line_and_nothing_is_started(
    flags: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    free = ("--http", "127.0.0.1:0", "--grpc", "off")
    listen = () if "--listen" in flags else ("--listen", "127.0.0.1:0")
    assert main([*GOOD, *free, *listen, *flags]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("headgate up: ")
    assert told in lines[0]


def test_wrong_rules_are_told_with_their_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules.yaml").write_text(RULES.replace("limit", "limt"))
    free = ("--http", "127.0.0.1:0", "--grpc", "off", "--listen", "127.0.0.1:0")
    assert main([*GOOD, *free]) == 2
    assert "rules.yaml:3:" in capsys.readouterr().err
    assert main([*GOOD, *free, "--check"]) == 1


class TestOptions:
    def _made(self, **given: object) -> UpOptions:
        values = {one.name: one.default for one in (*GATEWAY, *SERVICE)}
        return up._options({**values, **given})

    def test_without_a_secret_one_is_made_that_all_workers_have(self) -> None:
        assert len(self._made().service.secret) == 64
        assert self._made(secret=b"a secret of its own").service.secret == b"a secret of its own"

    def test_without_a_token_one_is_made(self) -> None:
        made = self._made()
        assert made.is_demo
        assert made.generated_token is not None
        assert made.service.admin_token == made.generated_token.encode()
        assert self._made(admin_token=b"a token of one's own").generated_token is None

    def test_the_service_may_be_for_envoy_alone(self) -> None:
        assert [one.is_unix for one in self._made(http=(), grpc=()).service.grpc] == [True]

    def test_reports_of_thousands_of_buckets_fit_into_a_message(self) -> None:
        assert self._made().service.max_message == 32 * 1024 * 1024

    def test_each_of_several_workers_has_ports_of_its_own(self) -> None:
        given = {"rules": "rules.yaml", "store": "redis://127.0.0.1:1"}
        assert self._made(workers=2, **given).service.grpc_ports == "each"
        assert self._made(workers=1, **given).service.grpc_ports == "shared"


@pytest.mark.parametrize(
    ("command", "settings"), [("up", (*GATEWAY, *SERVICE)), ("serve", SERVICE)]
)
def test_help_has_the_common_options_and_help_all_the_rest(
    command: str, settings: tuple[Setting, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = {one.flag: one.is_common for one in settings if one.flag is not None}
    for option, is_whole in (("--help", False), ("--help-all", True)):
        assert main([command, option]) == 0
        listed = set(re.findall(r"^  (--[\w-]+)", capsys.readouterr().out, re.MULTILINE))
        listed &= flags.keys()
        assert listed == {flag for flag, is_common in flags.items() if is_whole or is_common}
    assert 8 <= sum(flags.values()) <= 14


def test_help_fits_on_one_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["up", "--help"]) == 0
    assert len(capsys.readouterr().out.splitlines()) <= 48
