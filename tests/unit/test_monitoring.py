"""What is written about metrics (docs, dashboard, alerts) is about those that there are."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.observability.otel import metric_name
from tests.support.servers.process import run

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
PAGE = (ROOT / "docs" / "metrics.md").read_text("utf-8")
DASHBOARD = json.loads((ROOT / "deploy/grafana/headgate.json").read_text("utf-8"))
ALERTS = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "alerts.yaml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
TESTS = yaml.safe_load((PROMETHEUS / "alerts.test.yaml").read_text("utf-8"))["tests"]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VERBS = {"counter", "gauge", "tally", "collect"}


def rows() -> dict[str, tuple[str, ...]]:
    """The metrics that the page has, with their labels."""
    found = re.findall(r"^\| `(headgate_\w+)` \| ([^|]*)\|", PAGE, re.MULTILINE)
    return {name: tuple(re.findall(r"`(\w+)`", labels)) for name, labels in found}


def bare(name: str) -> str:
    """What a metric is called in the code."""
    own = re.sub(r"_(bucket|sum|count)$", "", name) if "decision_seconds" in name else name
    return own.removeprefix("headgate_").removesuffix("_total")


@cache
def nodes() -> tuple[ast.AST, ...]:
    """All of the code that has to do with measures."""
    texts = [path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py")]
    about = [text for text in texts if re.search(r"\bmetrics\b", text, re.IGNORECASE)]
    return tuple(node for text in about for node in ast.walk(ast.parse(text)))


def words() -> set[str]:
    """All texts of the code that could be names of measures."""
    return {
        node.value
        for node in nodes()
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def declared() -> dict[str, set[str]]:
    """The names that stand in calls of measures, with the labels that do."""
    found: dict[str, set[str]] = {}
    for node in nodes():
        if not (isinstance(node, ast.Call) and len(node.args) > 1):
            continue
        called, name = node.func, node.args[0]
        verb = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if verb in VERBS and isinstance(name, ast.Constant) and isinstance(name.value, str):
            labels = [keyword.arg for keyword in node.keywords if keyword.arg is not None]
            found.setdefault(name.value, set()).update(labels)
    return found


def mentioned(expression: str) -> set[str]:
    return {bare(name) for name in re.findall(r"\bheadgate_\w+", expression)}


KNOWN = {bare(name) for name in rows()}


def test_every_measure_of_the_code_is_on_the_page_with_its_labels() -> None:
    code = declared()
    assert len(code) > 30
    assert set(code) <= KNOWN
    told = {bare(name): set(labels) for name, labels in rows().items()}
    assert {name: labels for name, labels in code.items() if labels - told[name]} == {}


def test_everything_on_the_page_is_a_measure_of_the_code() -> None:
    assert words() >= KNOWN
    counters = {bare(name) for name in rows() if name.endswith("_total")}
    assert {"decisions", "store_errors", "policy_load_errors"} <= counters
    assert not counters & {"decision_seconds", "hot_keys", "policy_revision"}


def test_names_for_opentelemetry_are_told_apart() -> None:
    assert len({metric_name(name) for name in KNOWN}) == len(KNOWN)


class TestDashboard:
    def test_can_be_imported_into_any_grafana(self) -> None:
        assert DASHBOARD["id"] is None
        assert DASHBOARD["uid"] == "headgate"
        ids = [panel["id"] for panel in DASHBOARD["panels"]]
        assert len(set(ids)) == len(ids)
        sources = [one["datasource"]["uid"] for one in PANELS]
        sources += [target["datasource"]["uid"] for one in PANELS for target in one["targets"]]
        assert set(sources) == {"${datasource}"}, "whichever the reader chooses"
        variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
        assert list(variables) == ["datasource", "job", "instance", "rule"]
        assert variables["datasource"]["type"] == "datasource"

    def test_panels_have_a_title_a_word_and_a_place_of_their_own(self) -> None:
        taken: set[tuple[int, int]] = set()
        for panel in DASHBOARD["panels"]:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24, panel["title"]
            own = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not own & taken, panel["title"]
            taken |= own
        assert all(panel["title"] and panel["description"].endswith(".") for panel in PANELS)

    def test_targets_have_their_own_letters_and_choose_what_the_reader_chose(self) -> None:
        for panel in PANELS:
            letters = [target["refId"] for target in panel["targets"]]
            assert len(set(letters)) == len(letters)
            for target in panel["targets"]:
                assert 'job=~"$job",instance=~"$instance"' in target["expr"]

    def test_it_shows_every_metric_and_none_that_is_not(self) -> None:
        shown = set().union(
            *(mentioned(one["expr"]) for panel in PANELS for one in panel["targets"])
        )
        assert shown == KNOWN

    def test_variables_go_by_metrics_that_there_are(self) -> None:
        queries = [one.get("definition", "") for one in DASHBOARD["templating"]["list"]]
        assert set().union(*map(mentioned, queries)) <= KNOWN


class TestAlerts:
    @pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
    def test_each_says_what_is_wrong_how_bad_it_is_and_what_to_do(self, rule: Any) -> None:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        notes = rule["annotations"]
        assert notes["summary"].endswith(".")
        assert notes["description"].endswith(".")
        page, _, anchor = notes["runbook_url"].partition("#")
        assert (page, anchor) == ("docs/metrics.md", rule["alert"].lower())
        assert f"\n### {rule['alert']}\n" in PAGE
        assert mentioned(rule["expr"]) <= KNOWN

    def test_the_page_has_no_others(self) -> None:
        headings = re.findall(r"^### (Headgate\w+)$", PAGE, re.MULTILINE)
        assert headings == [rule["alert"] for rule in ALERTS]

    def test_each_is_seen_to_fire_and_not_to(self) -> None:
        assert [test["name"] for test in TESTS] == [rule["alert"] for rule in ALERTS]
        for test in TESTS:
            seen = [bool(one["exp_samples"]) for one in test["promql_expr_test"]]
            assert set(seen) == {True, False}, test["name"]

    def test_promtool_finds_nothing_wrong(self) -> None:
        run("promtool", "check", "rules", str(PROMETHEUS / "alerts.yaml"))
        run("promtool", "check", "config", str(PROMETHEUS / "prometheus.yaml"))

    def test_they_fire_when_they_should(self) -> None:
        told = run("promtool", "test", "rules", str(PROMETHEUS / "alerts.test.yaml"), within=60)
        assert told.endswith("SUCCESS")
