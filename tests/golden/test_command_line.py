"""Every command: its help, its exit status, and what it prints for input that does not change."""

import json
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.golden.command_line import CORPUS, ROOT, Ran, cases, run
from tests.golden.python_api import Concurrency, Hit, RateLimiter
from tests.golden.recorder import check_text, check_wire
from tests.support.servers import RedisServer

COMMANDS = (
    "",
    "up",
    "serve",
    "gateway",
    "gateway config",
    "rules",
    "rules check",
    "rules explain",
    "rules schema",
    "rules import-envoy",
    "top",
    "keys",
    "size",
    "simulate",
    "loadtest",
    "completion",
)

TRACES = ROOT / "examples/traces"
GOOD = "version: 1\nrules:\n  - {id: per-ip, key_by: ip, limit: 5/hour}\n"
WARNED = "version: 1\nrules:\n  - {id: per-ip, key_by: ip, limit: 5/hour, mode: off}\n"
FILES = {
    "rules.yaml": GOOD,
    "bad.yaml": GOOD.replace("5/hour", "5/hou"),
    "warned.yaml": WARNED,
    "broken.yaml": "{",
    "trace.csv": "time,method,path,ip\n0,GET,/,192.0.2.1\n1,GET,/,192.0.2.1\n",
    "not-a-trace.csv": "nothing\n",
    "envoy.yaml": cases("envoy.txt")["good"],
    "bad-envoy.yaml": "domain: ''\n",
    "settings.yaml": "rules: rules.yaml\nworkers: 2\n",
    "bad-settings.yaml": "rules: rules.yaml\nworkers: many\nstoer: memory://\n",
    "token": "0123456789abcdef0123\n",
}

CALLS = (
    "",
    "--version",
    "--help",
    "--nonsense",
    "nonsense",
    "gateway",
    "gateway nonsense",
    "gateway config",
    "gateway config nginx",
    "gateway config nginx --rules rules.yaml",
    "gateway config nginx --rules bad.yaml",
    "gateway config nginx --rules missing.yaml",
    "gateway config nginx --output rules.yaml",
    "gateway config nginx --output new.conf",
    "gateway config apache",
    "rules",
    "rules nonsense",
    "rules check",
    "rules check rules.yaml",
    "rules check rules.yaml --strict",
    "rules check warned.yaml",
    "rules check warned.yaml --strict",
    "rules check bad.yaml",
    "rules check broken.yaml",
    "rules check missing.yaml",
    "rules check empty",
    "rules explain rules.yaml",
    "rules explain rules.yaml /",
    "rules explain rules.yaml / --repeat 6",
    "rules explain rules.yaml / --repeat 0",
    "rules explain rules.yaml / --cost -1",
    "rules explain rules.yaml / --ip nonsense",
    "rules explain rules.yaml / -H nonsense",
    "rules explain rules.yaml nonsense",
    "rules explain rules.yaml / --store reddis://x",
    "rules explain rules.yaml / --store redis://127.0.0.1:1?timeout=10",
    "rules explain rules.yaml / --store redis://127.0.0.1:1 --repeat 2",
    "rules explain bad.yaml /",
    "rules explain missing.yaml /",
    "rules schema",
    "rules schema extra",
    "rules import-envoy envoy.yaml",
    "rules import-envoy bad-envoy.yaml",
    "rules import-envoy missing",
    "rules import-envoy envoy.yaml --output rules.yaml",
    "rules import-envoy envoy.yaml --output imported.yaml",
    "rules import-envoy envoy.yaml --output imported.yaml --force",
    "rules import-envoy envoy.yaml --output no/such/folder.yaml",
    "serve --check",
    "serve --rules rules.yaml --check",
    "serve --rules rules.yaml --check --json",
    "serve --rules bad.yaml --check",
    "serve --rules bad.yaml --check --json",
    "serve --rules missing.yaml --check",
    "serve --config settings.yaml --check",
    "serve --config bad-settings.yaml --check",
    "serve --config bad-settings.yaml --check --json",
    "serve --config missing.yaml --check",
    "serve --envoy-config envoy.yaml --check",
    "serve --rules rules.yaml --store reddis://x --check",
    "serve --rules rules.yaml --workers 0 --check",
    "serve --rules rules.yaml --http nonsense --check",
    "serve --rules rules.yaml --salt-file nowhere --check",
    "serve --rules rules.yaml --admin-token hunter2",
    "up --rules rules.yaml",
    "up --rules rules.yaml --upstream nonsense",
    "up --rules missing.yaml --upstream http://127.0.0.1:9000",
    "up --rules rules.yaml --upstream http://127.0.0.1:9000 --listen-tls-cert a.pem",
    "up --rules bad.yaml --upstream http://127.0.0.1:9000 --check",
    "up --rules rules.yaml --upstream http://127.0.0.1:9000 --check",
    "top --once",
    "top --once --token-file missing",
    "top --once --token-file token --url http://127.0.0.1:1",
    "top --once --token-file token --url nonsense",
    "top --interval nonsense",
    "keys",
    "keys --store memory://",
    "keys --store reddis://x",
    "keys --store redis://127.0.0.1:1?timeout=10",
    "keys --store redis://:secret@127.0.0.1:1 --limit 0",
    "size --clients 10M --checks 1k",
    "size --clients 10M --checks 1k --json",
    "size --clients 10M",
    "size --clients many --checks 1k",
    "size --clients 10 --checks 10 --use 2",
    "simulate rules.yaml trace.csv",
    "simulate rules.yaml trace.csv --fail-if-denied 1%",
    "simulate rules.yaml --workload steady --rate 5 --duration 5s --callers 1",
    "simulate rules.yaml --workload steady --rate 5 --duration 5s --callers 1 --fail-if-denied 1%",
    "simulate rules.yaml",
    "simulate rules.yaml missing.csv",
    "simulate rules.yaml not-a-trace.csv",
    "simulate bad.yaml trace.csv",
    "simulate missing.yaml trace.csv",
    "simulate rules.yaml trace.csv --against bad.yaml",
    "simulate rules.yaml trace.csv --fail-if-denied much",
    "simulate rules.yaml --workload nonsense",
    "loadtest http://127.0.0.1:1/",
    "loadtest nonsense --rule 5/s",
    "loadtest http://127.0.0.1:1/ --rule nonsense",
    "loadtest http://127.0.0.1:1/ --rule per-ip --rules missing.yaml",
    "loadtest http://127.0.0.1:1/ --rule other --rules rules.yaml",
    "loadtest http://127.0.0.1:1/ --rule 5/s --duration 10h",
    "loadtest http://example.org/ --rule 5/s",
)
"""Calls that end by themselves, in a folder with `FILES`."""

SIMULATED = (
    "today.yaml access.log",
    "today.yaml access.log --against proposed.yaml",
    "today.yaml access.log --keys clear --step 5m",
    "today.yaml access.log --fail-if-denied 1%",
    "today.yaml --workload bursts --rate 5 --duration 30s --callers 3 --seed 7 --path /api/search",
    (
        "today.yaml --workload retry_storm --rate 5 --duration 30s --callers 3 --seed 7"
        " --path /login --method POST --retry at_once --attempts 3"
    ),
    (
        "today.yaml --workload boundary_attack --rate 5 --duration 2m --callers 2 --seed 7"
        " --path /api/search"
    ),
    (
        "today.yaml --workload many_tenants --rate 20 --duration 30s --callers 9 --seed 7"
        " --path /api/search"
    ),
)

SIZED = (
    "--clients 10M --rules 2 --checks 1M",
    "--clients 50k --checks 2k --way rls",
    "--clients 1 --checks 1 --use 1 --room 1 --workers-a-machine 1 --counter-bytes 200",
)


def of_all_versions(text: str) -> str:
    """A help text as all versions of argparse agree on it: an option is one line, without its
    metavar at the short flag."""
    joined = re.sub(r"\n {8,}", " ", text)
    plain = "\n".join(re.sub(r"(?<=\S) +", " ", line) for line in joined.splitlines())
    return re.sub(r"(-[\w-]+) (\S.*?), (-[\w-]+) \2", r"\1, \3 \2", plain)


def test_every_command_has_its_help() -> None:
    text = []
    for command in COMMANDS:
        option = "--help-all" if command in ("up", "serve") else "--help"
        ran = run(*command.split(), option)
        assert (ran.status, ran.err) == (0, "")
        text.append(f"=== headgate {command}\n{of_all_versions(ran.out)}\n")
    check_text("help", "\n".join(text))


# Another service may listen at the default ports.
FREE_PORTS = dict.fromkeys(("HEADGATE_HTTP", "HEADGATE_GRPC", "HEADGATE_LISTEN"), "127.0.0.1:0")


@pytest.fixture
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "empty").mkdir()


@pytest.mark.usefixtures("_files")
def test_commands_end_with_their_status() -> None:
    statuses = {}
    text = []
    for call in CALLS:
        ran = run(*shlex.split(call), env=FREE_PORTS)
        statuses[call] = ran.status
        text.append(Ran(ran.status, "", ran.err).as_text(call))
    check_wire("exit_codes", statuses)
    check_text("exit_codes", "".join(text))


def test_the_program_is_installed_and_ends_with_the_status_of_its_command() -> None:
    program = Path(sys.executable).parent / "headgate"
    for arguments, status in ((["--version"], 0), (["rules", "check", "/nowhere"], 2)):
        done = subprocess.run([program, *arguments], capture_output=True, check=False)  # noqa: S603
        assert done.returncode == status


def test_simulations_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TRACES)
    wire = {}
    text = []
    for call in SIMULATED:
        arguments = ("simulate", *shlex.split(call), "--quiet")
        ran = run(*arguments)
        text.append(ran.as_text(f"simulate {call}"))
        wire[call] = figures(json.loads(run(*arguments, "--json").out))
    check_text("simulate", "".join(text))
    check_wire("simulate", wire)


def figures(value: Any) -> Any:
    """A report without how long it took, and without long series: how many values each has, and
    their sum."""
    if isinstance(value, dict):
        return {
            name: "<seconds>" if name == "took_s" else figures(item) for name, item in value.items()
        }
    if isinstance(value, list) and len(value) > 9 and all(isinstance(one, int) for one in value):
        return f"{len(value)} values, {sum(value)} in all"
    return [figures(item) for item in value] if isinstance(value, list) else value


def test_fleets_are_sized() -> None:
    calls = {call: ("size", *call.split()) for call in SIZED}
    check_text(
        "size", "".join(run(*given).as_text(f"size {call}") for call, given in calls.items())
    )
    check_wire(
        "size", {call: json.loads(run(*given, "--json").out) for call, given in calls.items()}
    )


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with RedisServer() as server:
        yield server.url


def test_counters_are_listed(redis_url: str) -> None:
    _count(redis_url)
    text, wire = [], {}
    for call in (
        "",
        "'user:*'",
        "--namespace shop",
        "--show user:1",
        "--show user:1 --namespace shop",
        "--show 'user:3'",
        "--show nobody",
        "nothing*",
    ):
        given = ("keys", "--store", redis_url, *shlex.split(call))
        ran = run(*given)
        text.append(without_times(ran.as_text(f"keys {call}")))
        found = run(*given, "--json")
        wire[call] = {"status": found.status, **without_seconds(json.loads(found.out))}
    check_text("keys", "".join(text))
    check_wire("keys", wire)


def _count(url: str) -> None:
    """Leave counters of every kind."""
    limits = ["100/day", "1000/4w fixed_window", "50/4w sliding_window_counter"]  # slow to change
    with RateLimiter(limits, store=url, name="api", namespace="shop") as limiter:
        limiter.charge("user:1", 10)
        limiter.reserve("user:1", 30, ttl=3600)
        limiter.hit_all([Hit("user:1", "5/hour sliding_window_log", 1, "export")])
        limiter.hit_all([Hit("user:2", "10/day", 1)])
        limiter.charge("k" * 300, 900)
    with RateLimiter(Concurrency(5, 600), store=url, name="api", namespace="jobs") as limiter:
        limiter.slot("user:1").take()
    with RateLimiter("10/hour gcra", store=url, name="api") as limiter:
        limiter.hit("user:3\x1b[K")
        limiter.hit("user:3")


def without_times(text: str) -> str:
    """*text* of `headgate keys` without what goes by the clock of the server."""
    times = re.sub(r"(?<![\w/.])(\d+(w|d|h|ms|m|s))+(?!\w)", "<time>", text)
    names = re.sub(r"(?<![0-9a-f])[0-9a-f]{24}(?![0-9a-f])", "<name>", times)
    return "\n".join(re.sub(r"(?<=\S) +", " ", line).rstrip() for line in names.splitlines()) + "\n"


def without_seconds(value: Any) -> Any:
    """The same for JSON: numbers that are no whole ones are times."""
    if isinstance(value, dict):
        return {name: without_seconds(item) for name, item in value.items()}
    if isinstance(value, list):
        return [without_seconds(item) for item in value]
    if isinstance(value, float):
        return "<seconds>"
    is_name = isinstance(value, str) and re.fullmatch("[0-9a-f]{24}", value)
    return "<name>" if is_name else value


class _Live(BaseHTTPRequestHandler):
    """A service that always says the same of itself."""

    def do_GET(self) -> None:
        body = (CORPUS / "live.json").read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def service_url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Live) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("_files")
def test_a_service_is_shown(service_url: str) -> None:
    text = []
    for call in ("--once", "--once --rule per-tenant", "--once --rule nobody"):
        ran = run("top", "--url", service_url, "--token-file", "token", *call.split())
        text.append(ran.as_text(f"top {call}"))
    check_text("top", "".join(text))
