"""A real Prometheus scrapes a real service: what is told is valid, and every expression of the
dashboard and of the alerts is one that it can answer."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml

from tests.support.decision_service import PLAIN, Service, serving
from tests.support.servers import RedisServer, free_port, release_port, wait_until
from tests.support.servers.process import Process, run

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
DASHBOARD = json.loads((ROOT / "deploy/grafana/headgate.json").read_text("utf-8"))
ALERTS = yaml.safe_load((PROMETHEUS / "alerts.yaml").read_text("utf-8"))
RULES = """\
version: 1
rules:
  - {id: per-ip, key_by: ip, limit: 5/hour}
  - {id: tried, key_by: ip, limit: 2/hour, mode: shadow}
  - {id: leased, key_by: ip, limit: 1000/s, accuracy: {max_overshoot: 10%}}
"""
FLAGS = ("--workers", "2", "--log-denials", "1")
WITH_DATA = {
    "Requests", "Denied", "Decision, p99", "Store", "Fail mode", "Policy revision", "Rules",
    "Nodes up", "Requests by outcome", "Denied by rule", "Allowed by rule",
    "Would be denied (shadow) by rule", "By source", "Share that is denied, by rule",
    "Decision latency", "p99 by node", "Calls", "Circuit breaker", "Fail mode active",
    "Decided without the store", "Leases", "Overshoot bound", "Hot keys",
    "Decisions without a round trip", "Waiting", "Revision by node", "Load errors", "Uptime",
}  # fmt: skip
"""The panels that show something of a service that runs as it should, without queues."""


class Prometheus:
    """One that scrapes *target*, a port, several times a second, as our configuration says."""

    def __init__(self, target: int, directory: Path) -> None:
        self.port = free_port()
        config = yaml.safe_load((PROMETHEUS / "prometheus.yaml").read_text("utf-8"))
        config["global"] = {"scrape_interval": "200ms", "evaluation_interval": "200ms"}
        config["rule_files"] = [str(PROMETHEUS / "alerts.yaml")]
        config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{target}"]}]
        path = directory / "prometheus.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        call = ["prometheus", f"--config.file={path}", f"--storage.tsdb.path={directory / 'data'}"]
        call.append(f"--web.listen-address=127.0.0.1:{self.port}")
        self.process = Process(call, directory / "log")

    def ask(self, path: str, **parameters: str) -> Any:
        answer = PLAIN.get(f"http://127.0.0.1:{self.port}/api/v1/{path}", params=parameters)
        told = answer.json()
        assert told["status"] == "success", told
        return told["data"]

    def query(self, expression: str) -> list[Any]:
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found

    def found(self, *expressions: str) -> list[Any]:
        """What *expressions* are, once any of them is something: after a scrape that took too long
        there is nothing until the next one."""
        told: list[Any] = []

        def is_something() -> bool:
            told[:] = [one for expression in expressions for one in self.query(expression)]
            return bool(told)

        wait_until(is_something, f"there is something of {expressions}")
        return told

    def has_seen(self, refusals: int) -> bool:
        """Whether it has seen so many *refusals*, several times over."""
        try:
            ready = PLAIN.get(f"http://127.0.0.1:{self.port}/-/ready")
        except httpx.TransportError:
            return False
        told = (
            f"sum(min_over_time(headgate_requests_total{{outcome='denied'}}[500ms])) >= {refusals}"
        )
        return ready.status_code == 200 and bool(self.query(told))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Prometheus]]:
    """Both, with some traffic. Prometheus first: it looks for targets every 5 seconds only."""
    port, directory = free_port(), tmp_path_factory.mktemp("serve")
    prometheus = Prometheus(port, tmp_path_factory.mktemp("prometheus"))
    listening = {"http": f"127.0.0.1:{port}", "is_awaited": False, "rules": RULES}
    try:
        with (
            RedisServer() as redis,
            serving(directory, *FLAGS, "--store", redis.url, **listening) as service,  # type: ignore[arg-type] # as it is
        ):
            service.port, service.url = port, f"http://127.0.0.1:{port}"
            wait_until(service.is_ready, "the service is ready", within=60.0)
            for seen in (4, 8):  # what is new has no rate yet
                assert 429 in service.statuses(9, ip="192.0.2.9")
                wait_until(partial(prometheus.has_seen, seen), "it has scraped", within=30.0)
            yield service, prometheus
    finally:
        prometheus.process.terminate()
        release_port(prometheus.port)
        release_port(port)


@pytest.fixture
def service(running: tuple[Service, Prometheus]) -> Service:
    return running[0]


@pytest.fixture
def prometheus(running: tuple[Service, Prometheus]) -> Prometheus:
    return running[1]


def asked(expression: str) -> str:
    """*expression* with what Grafana puts in for its variables."""
    expression = expression.replace("$__rate_interval", "10s")
    return re.sub(r"\$(job|instance|rule)\b", ".*", expression)


def test_what_is_told_is_good_style(service: Service) -> None:
    service.check()
    text = PLAIN.get(f"{service.url}/metrics").text
    assert run("promtool", "check", "metrics", typed=text) == ""


def test_everything_that_is_told_is_on_the_page(service: Service) -> None:
    told = re.findall(r"^# TYPE (\w+) ", PLAIN.get(f"{service.url}/metrics").text, re.MULTILINE)
    assert len(told) > 20
    page = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    assert set(told) <= set(re.findall(r"^\| `(headgate_\w+)` \|", page, re.MULTILINE))


def test_every_expression_of_the_dashboard_is_answered(prometheus: Prometheus) -> None:
    for panel in DASHBOARD["panels"]:
        expressions = [asked(one["expr"]) for one in panel.get("targets", ())]
        if expressions and panel["title"] in WITH_DATA:
            prometheus.found(*expressions)
        for expression in expressions:
            prometheus.query(expression)


def test_some_refusals_are_in_the_log_with_hashed_keys(service: Service) -> None:
    assert "info denied by per-ip: key ip=~" in service.log
    assert "info shadow denied by tried: key ip=~" in service.log
    assert "192.0.2.9" not in service.log


def test_every_variable_of_the_dashboard_has_values(prometheus: Prometheus) -> None:
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert found is not None
            series = prometheus.found(asked(found[1]))
            assert {one["metric"][found[2]] for one in series}, variable["name"]


def test_every_alert_is_evaluated_and_none_fires(prometheus: Prometheus) -> None:
    groups = prometheus.ask("rules")["groups"]
    told = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert set(told) == {rule["alert"] for group in ALERTS["groups"] for rule in group["rules"]}
    assert {rule["health"] for rule in told.values()} <= {"ok", "unknown"}
    assert not [name for name, rule in told.items() if rule["state"] == "firing"]
    for group in ALERTS["groups"]:
        for rule in group["rules"]:
            prometheus.query(rule["expr"])


def test_all_workers_are_told_and_together_they_have_every_request(prometheus: Prometheus) -> None:
    assert len(prometheus.found("count by (worker) (headgate_requests_total)")) == 2
    (total,) = prometheus.found("sum(headgate_requests_total)")
    assert float(total["value"][1]) >= 10
