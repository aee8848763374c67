"""Rules changed in the dashboard, in a real browser: looked at before, in force after, undone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.dashboard_driving import admin, check, dashboard, serving_dashboard
from tests.servers.browser import Browser, Page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.serve_driving import Service


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving_dashboard(tmp_path_factory.mktemp("service")) as service:
        yield service


@pytest.fixture
def page(browser: Browser, service: Service) -> Iterator[Page]:
    """The dashboard of a service with the rules of the first revision."""
    admin(service, "POST", "/rollback", json={"revision": 1})
    with dashboard(browser, service) as page:
        yield page


def edit(page: Page, rule_id: str, rule: dict[str, Any]) -> None:
    """Open the editor of a rule, and write *rule* in place of it."""
    page.click(f"[aria-label='Edit {rule_id}']")
    page.until("document.querySelector('#editor').open", "the editor is open")
    page.write("#editor-text", json.dumps(rule, indent=1))


def closed(page: Page) -> None:
    page.until("!document.querySelector('dialog[open]')", "the dialog has closed")


def newest(service: Service) -> dict[str, Any]:
    found: dict[str, Any] = admin(service, "GET", "/history?limit=1").json()["revisions"][0]
    return found


def test_a_rule_that_is_edited_is_enforced_and_rolled_back(page: Page, service: Service) -> None:
    ip = "192.0.2.11"
    revision = newest(service)["revision"]
    assert [check(service, ip) for _ in range(3)] == [200, 200, 200]
    assert check(service, ip) == 429
    edit(page, "per-ip", {"match": {"endpoint": "/api/**"}, "key_by": "ip", "limit": "6/hour"})
    page.click("#editor-preview")
    page.until("document.querySelector('#editor-result ins')", "the preview is there")
    assert "3/hour → 6/hour" in page.text("#editor-result")
    assert newest(service)["revision"] == revision
    page.write("#editor-reason", "partners asked, ticket 4711")
    page.click("#editor-apply")
    closed(page)
    assert newest(service) | {"time": ""} == {
        "revision": revision + 1,
        "author": "ada",
        "time": "",
        "what": "put rule per-ip",
        "note": "partners asked, ticket 4711",
    }
    assert [check(service, ip) for _ in range(4)] == [200, 200, 200, 429]
    page.until("document.querySelector('#rules-table').innerText.includes('6 per hour')", "seen")
    page.until("document.querySelector('#history').innerText.includes('4711')", "in the history")

    page.click(f"[aria-label='Roll back to revision {revision}']")
    page.until("document.querySelector('#sure del')", "what would change is shown")
    assert "6/hour → 3/hour" in page.text("#sure")
    page.write("#sure-reason", "it was too much")
    page.click("#sure-yes")
    closed(page)
    assert newest(service)["note"] == "it was too much"
    assert check(service, "192.0.2.12") == 200
    assert service.check("192.0.2.12", path="/api/items").headers["x-ratelimit-limit"] == "3"


def test_what_is_wrong_is_told_at_its_field_and_changes_nothing(
    page: Page, service: Service
) -> None:
    revision = newest(service)["revision"]
    edit(page, "per-ip", {"match": {"endpoint": "/api/**"}, "key_by": "api_kee", "limit": "5/hour"})
    for button in ("#editor-preview", "#editor-apply"):
        page.click(button)
        page.until("document.querySelector('#editor-findings li')", "the error is told")
        told = page.text("#editor-findings li")
        assert told.startswith("key_by: line 5: nothing is known as 'api_kee'")
        assert "did you mean 'api_key'?" in told
        area = "document.querySelector('#editor-text')"
        assert page.evaluate(f"{area}.ariaInvalid") == "true"
        chosen = f"{area}.value.slice({area}.selectionStart, {area}.selectionEnd)"
        assert page.evaluate(chosen) == '"key_by"'
        assert page.evaluate("document.activeElement.id") == "editor-text"
    page.write("#editor-text", "{ no JSON")
    page.click("#editor-apply")
    page.until("document.querySelector('#editor-findings').innerText.includes('no JSON')", "told")
    page.write("#editor-reason", "\u2603")
    page.write("#editor-text", '{"key_by": "ip", "limit": "5/hour"}')
    page.click("#editor-apply")
    page.until("document.querySelector('#editor-findings').innerText.includes('reason')", "told")
    assert newest(service)["revision"] == revision


def test_what_somebody_else_has_changed_meanwhile_is_not_overwritten(
    page: Page, service: Service
) -> None:
    edit(page, "searches", {"key_by": "ip", "limit": "1/s"})
    other = {"key_by": "ip", "limit": "77/s"}
    assert admin(service, "PUT", "/rules/searches", json=other).status_code == 200
    page.click("#editor-apply")
    page.until("document.querySelector('#editor-findings button')", "it is told")
    assert admin(service, "GET", "/rules/searches").json()["rule"] == other
    page.click("#editor-findings button")
    page.until("document.querySelector('#editor-text').value.includes('77/s')", "theirs is there")


def test_a_rule_is_switched_off_and_on_made_and_deleted(page: Page, service: Service) -> None:
    page.click("[aria-label='Edit per-ip']")
    page.click("#editor-switch")
    closed(page)
    assert {check(service, "192.0.2.21") for _ in range(9)} == {200}
    page.click("[aria-label='Edit per-ip']")
    page.until("document.querySelector('#editor-switch').innerText === 'Switch on'", "it is off")
    page.click("#editor-switch")
    closed(page)
    assert {check(service, "192.0.2.21") for _ in range(9)} == {200, 429}

    page.click("#rule-new")
    page.until("document.activeElement.id === 'editor-id'", "the id is asked for")
    page.write("#editor-id", "made-here")
    page.click("#editor-apply")
    closed(page)
    assert admin(service, "GET", "/rules/made-here").json()["rule"]["limit"] == "100/minute"
    page.click("[aria-label='Edit made-here']")
    page.click("#editor-delete")
    page.until("document.querySelector('#sure').open", "it asks before")
    page.click("#sure-yes")
    closed(page)
    assert admin(service, "GET", "/rules/made-here").status_code == 404


def test_a_candidate_is_tried_beside_a_rule_and_adopted(page: Page, service: Service) -> None:
    stricter = {"match": {"endpoint": "/api/**"}, "key_by": "ip", "limit": "1/hour"}
    edit(page, "per-ip", stricter | {"mode": "enforce"})
    page.click("#editor-try")
    closed(page)
    for _ in range(3):
        assert check(service, "192.0.2.31") == 200
    told = "document.querySelector('#candidate-list').innerText"
    sentence = "per-ip-candidate would have denied 2 requests of 1 caller since "
    page.until(f"{told}.includes({json.dumps(sentence)})", "what it would have denied is told")
    assert "; 2 of them per-ip let pass" in page.text("#candidate-list")
    page.click("[aria-label='Adopt per-ip-candidate']")
    page.until("document.querySelector('#sure').open", "it asks before")
    assert "3/hour → 1/hour" in page.text("#sure")
    page.click("#sure-yes")
    closed(page)
    page.until("!document.querySelector('[aria-label=\"Adopt per-ip-candidate\"]')", "it is gone")
    assert admin(service, "GET", "/rules/per-ip").json()["rule"]["limit"] == "1/hour"
    assert admin(service, "GET", "/rules/per-ip-candidate").status_code == 404


def test_a_candidate_is_discarded(page: Page, service: Service) -> None:
    edit(page, "searches", {"key_by": "ip", "limit": "1/s"})
    page.click("#editor-try")
    closed(page)
    page.click("[aria-label='Discard searches-candidate']")
    page.until("document.querySelector('#sure').open", "it asks before")
    page.click("#sure-yes")
    closed(page)
    assert admin(service, "GET", "/rules/searches-candidate").status_code == 404
    assert admin(service, "GET", "/rules/searches").status_code == 200


def test_what_a_revision_changed_can_be_looked_at(page: Page, service: Service) -> None:
    changed = {"key_by": "ip", "limit": "55/s", "description": "<script>alert(1)</script>"}
    assert admin(service, "PUT", "/rules/searches", json=changed).status_code == 200
    revision = newest(service)["revision"]
    page.click(f"[aria-label='What revision {revision} changed']")
    page.until("document.querySelector('#sure ins')", "it is shown")
    assert "100/s → 55/s" in page.text("#sure")
    assert "<script>alert(1)</script>" in page.text("#sure")
    page.press("Escape")
    closed(page)
