"""`headgate gateway config`: what is printed, written and refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headgate.cli import main

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "your-gateway.md"
COMMANDS = (DOCS / "cli.md").read_text("utf-8")


def call(*arguments: str) -> int:
    return main(["gateway", "config", *arguments])


@pytest.mark.parametrize("name", ["nginx", "caddy", "traefik", "envoy", "istio"])
def test_prints_a_configuration(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(name) == 0
    printed = capsys.readouterr()
    assert "as Headgate decides" in printed.out.partition("\n")[0]
    assert printed.err == ""


def test_prints_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("caddy", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["name"] == "caddy"
    assert call("caddy") == 0
    assert told["text"] == capsys.readouterr().out


def test_options_reach_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--service", "http://10.0.0.7:9", "--upstream", "https://app.example"]
    given += ["--listen", "0.0.0.0:80", "--server-name", "www.example", "--timeout", "1"]
    assert call("nginx", *given, "--on-failure", "closed", "--full") == 0
    printed = capsys.readouterr().out
    for part in (
        "server 10.0.0.7:9;",
        "server app.example:443;",
        "listen 0.0.0.0:80;",
        "server_name www.example;",
        "proxy_read_timeout 1000ms;",
        "events {",
    ):
        assert part in printed
    assert "@headgate_open" not in printed


def test_the_headers_of_the_rules_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.yaml"
    text = "version: 1\nrules: [{id: a, key_by: 'header:x-device', limit: 1/s}]\n"
    rules.write_text(text, encoding="utf-8")
    for name in ("envoy", "istio", "traefik"):
        assert call(name, "--rules", str(rules)) == 0
        assert '"x-device"' in capsys.readouterr().out


@pytest.mark.parametrize("name", ["nginx", "caddy"])
def test_a_gateway_is_told_to_wait_as_long_as_the_rules_may_delay(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.yaml"
    text = "version: 1\nrules: [{id: a, key_by: ip, shape: {rate: 1/s, queue: 7}}]\n"
    rules.write_text(text, encoding="utf-8")
    assert call(name, "--rules", str(rules)) == 0
    assert "7250ms" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["nginx", "caddy", "traefik"])
def test_rules_that_such_a_gateway_cannot_charge_in_full_are_named(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.yaml"
    for cost, is_told in (("{after: {header: x-tokens}}", True), ("2", False)):
        text = f"version: 1\nrules: [{{id: spent, key_by: ip, limit: 9/s, cost: {cost}}}]\n"
        rules.write_text(text, encoding="utf-8")
        assert call(name, "--rules", str(rules)) == 0
        assert ("#   spent\n" in capsys.readouterr().out) is is_told


def test_rules_with_errors_are_told_with_their_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("version: 1\nrules: [{id: a, limit: 1/fortnight}]\n", encoding="utf-8")
    assert call("envoy", "--rules", str(rules)) == 2
    assert "rules.yaml:2:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["haproxy"], "nginx, caddy, traefik, envoy, istio"),
        (["nginx", "--grpc", "a:1"], "--grpc does not apply to nginx"),
        (["istio", "--listen", "127.0.0.1:80"], "--listen does not apply to istio"),
        (["traefik", "--on-failure", "open"], "use closed, or leave it out"),
        (["nginx", "--server-name", "a; }"], "not a host name"),
        (["nginx", "--upstream", "http://a b"], "is not the URL"),
        (["nginx", "--timeout", "-1"], "seconds"),
        (["nginx", "--timeout", "soon"], "--timeout"),
        (["nginx", "--on-failure", "maybe"], "--on-failure"),
        (["envoy", "--rules", "/nowhere.yaml"], "/nowhere.yaml"),
        ([], "NAME"),
    ],
)
def test_nonsense_is_one_line_and_status_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert told in printed.err


def test_writes_a_new_file_and_replaces_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "envoy.yaml"
    assert call("envoy", "--output", str(target)) == 0
    assert capsys.readouterr().out == ""
    written = target.read_text("utf-8")
    assert "as Headgate decides" in written.partition("\n")[0]
    assert call("envoy", "--on-failure", "closed", "--output", str(target)) == 2
    assert "exists" in capsys.readouterr().err
    assert target.read_text("utf-8") == written
    assert call("envoy", "--output", str(tmp_path / "none" / "envoy.yaml")) == 2
    assert "cannot write" in capsys.readouterr().err


def test_the_page_tells_of_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text("utf-8")
    assert call("--help") == 0
    flags = set(re.findall(r"(--[a-z-]+)", capsys.readouterr().out)) - {"--help"}
    assert len(flags) > 8
    assert not {flag for flag in flags if f"`{flag}" not in page}


def test_the_page_about_the_command_shows_what_it_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    [(command, count, shown)] = re.findall(
        r"\$ headgate (gateway config caddy .*?) \| head -n (\d+)\n(.*?)```", COMMANDS, re.DOTALL
    )
    assert main(command.split()) == 0
    assert "".join(capsys.readouterr().out.splitlines(keepends=True)[: int(count)]) == shown


@pytest.mark.parametrize("name", ["gateway config nginx --grpc", "up --rules rules.yaml;"])
def test_the_page_about_the_command_shows_what_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [(rest, shown)] = re.findall(
        rf"\$ headgate {re.escape(name)}(.*?)echo \"status \$\?\"\n(.*?)status 2",
        COMMANDS,
        re.DOTALL,
    )
    (tmp_path / "rules.yaml").write_text("version: 1\nrules: []\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main((name + rest).replace(";", "").split()) == 2
    assert capsys.readouterr().err == shown


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--help") == 0
    assert "headgate gateway config envoy --rules" in capsys.readouterr().out
