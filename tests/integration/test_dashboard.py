"""The dashboard of a real service in a real browser: what is seen, by whom, on what; and rules
changed there: looked at before, in force after, undone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.dashboard import (
    CONTRAST,
    READER,
    TOKEN,
    admin,
    check,
    closed,
    dashboard,
    edit,
    go,
    newest,
    opened,
    serving_dashboard,
)
from tests.support.decision_service import Service, serving
from tests.support.servers.browser import Browser, Page

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving_dashboard(tmp_path_factory.mktemp("service")) as service:
        yield service


@pytest.fixture
def service(running: Service) -> Service:
    """A service with the rules of the first revision."""
    if newest(running)["revision"] != 1:
        admin(running, "POST", "/rollback", json={"revision": 1})
    return running


@pytest.fixture
def page(browser: Browser, service: Service) -> Iterator[Page]:
    """Its dashboard."""
    with dashboard(browser, service) as page:
        yield page


def test_it_shows_how_the_service_stands_and_what_the_rules_are(
    page: Page, service: Service
) -> None:
    assert page.text("#state") == "Healthy"
    assert "Memory: healthy" in page.text("#facts")
    assert f"Revision {newest(service)['revision']}" in page.text("#facts")
    rows = page.text("#rules-table")
    assert "3 per hour for each ip" in rows
    assert "POST /search" in rows
    assert newest(service)["what"] in page.text("#history")
    assert page.evaluate("document.querySelector('[data-access]').dataset.access") == "open"


def test_the_token_is_taken_out_of_the_address_and_kept_in_the_tab_only(
    page: Page, service: Service
) -> None:
    assert page.evaluate("location.href") == f"{service.url}/#/rules"
    assert page.evaluate("Object.values(sessionStorage).join()") == TOKEN
    assert page.evaluate("localStorage.length + document.cookie.length") == 0
    assert all(TOKEN not in url.partition("#")[0] for url in page.requests)
    assert TOKEN not in service.log
    page.click(".sections a")
    assert page.evaluate("location.href") == f"{service.url}/#/overview"
    page.click("#forget")
    page.until("document.body.dataset.access === 'locked'", "the token is forgotten")
    assert page.evaluate("sessionStorage.length") == 0


def test_a_wrong_token_is_told_and_the_right_one_opens(browser: Browser, service: Service) -> None:
    with opened(browser, f"{service.url}/") as page:
        page.until("document.body.dataset.access === 'locked'", "a token is asked for")
        assert "HEADGATE_ADMIN_TOKEN" in page.text("#access")
        assert page.evaluate("getComputedStyle(document.querySelector('#rules')).display") == "none"
        page.write("#token", "wrong-horse-battery")
        page.press("Enter")
        page.until("document.querySelector('#token-error').innerText", "it is refused")
        page.write("#token", TOKEN)
        page.press("Enter")
        page.until("document.querySelector('#history tbody tr')", "it is open")


def test_without_an_admin_token_it_says_how_to_set_one_and_shows_what_a_caller_has_left(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with serving(tmp_path_factory.mktemp("closed")) as service:
        assert check(service, "192.0.2.1", "/") == 200
        with opened(browser, f"{service.url}/") as page:
            page.until("document.body.dataset.access === 'closed'", "it is closed")
            assert "HEADGATE_ADMIN_TOKEN" in page.text("main")
            assert page.text("#state").startswith("Healthy")
            page.write("#caller-ip", "192.0.2.1")
            page.click("#caller-form button")
            page.until("document.querySelector('#limits table')", "the limits are shown")
            assert "4 of 5" in page.text("#limits")


def test_traffic_is_seen_while_it_happens(page: Page, service: Service) -> None:
    for _ in range(6):
        check(service, "198.51.100.1")
    denied = "document.querySelector('#rules-table .is-denied').closest('tr').innerText"
    page.until(f"{denied}.startsWith('per-ip')", "the denials are seen")
    page.until(
        "document.querySelector('#candidate-list').innerText.includes('would have denied')",
        "the card shows what the candidate would have denied",
    )
    go(page, "overview")
    page.until("document.querySelector('#tiles .is-some')", "the figures say so")
    page.until(
        "document.querySelector('#most-denied')?.innerText.includes('198.51.100.1')", "the key"
    )
    label = "document.querySelector('#chart svg').getAttribute('aria-label')"
    page.until(f"{label}?.startsWith('Requests per second, the last 5 min')", "the chart")
    page.click("[data-range='24h']")
    page.until("document.querySelector('.times').innerText.startsWith('24 h ago')", "a day")
    assert page.evaluate("location.hash") == "#/overview?range=24h"


def test_a_rule_has_a_page_whose_address_can_be_shared(
    browser: Browser, page: Page, service: Service
) -> None:
    changed = {"key_by": "ip", "limit": "90/s"}
    assert admin(service, "PUT", "/rules/searches", json=changed).status_code == 200
    for _ in range(5):
        check(service, "198.51.100.4")
    page.click("#rules-table .name")
    page.click("[data-range='1h']")
    address = page.evaluate("location.href")
    assert address == f"{service.url}/#/rules/per-ip?range=1h"
    label = "document.querySelector('#chart svg').getAttribute('aria-label')"
    with opened(browser, f"{address}&token={TOKEN}") as other:
        other.until(f"{label}.startsWith('Requests per second decided by per-ip')", "its chart")
        assert "the last 60 min" in other.evaluate(label)
        facts = "document.querySelector('#rule-facts').innerText"
        other.until(f"{facts}.includes('3 per hour')", "what it says")
        other.click("[data-range='6h']")
        assert other.evaluate("location.href") == address.replace("1h", "6h"), "without the token"
        keys = "document.querySelector('#most-denied').innerText"
        other.until(f"{keys}.includes('198.51.100.4')", "its keys")
        go(other, "rules/searches")
        changes = "document.querySelector('#rule-history').innerText"
        other.until(f"{changes}.includes('put rule searches')", "its history")
        go(other, "rules/nobody")
        other.until("!document.querySelector('#rule-unknown').hidden", "there is no such rule")


def test_a_caller_has_a_page_and_is_blocked_granted_more_and_reset(
    page: Page, service: Service
) -> None:
    ip = "198.51.100.5"
    for _ in range(5):
        check(service, ip)
    go(page, "callers")
    page.write("#caller-ip", ip)
    page.click("#caller-form button")
    row = "document.querySelector('#caller-limits tbody tr')?.innerText ?? ''"
    page.until(f"({row}).includes('0 of 3')", "what is left is shown")
    assert page.evaluate("location.hash") == "#/callers/ip%3D198.51.100.5"

    page.click("[aria-label='Reset per-ip']")
    page.click("#confirm-yes")
    closed(page)
    page.until(f"({row}).includes('3 of 3')", "the counter is reset")
    page.click("[aria-label='Block per-ip']")
    page.write("#confirm-reason", "abuse")
    page.click("#confirm-yes")
    closed(page)
    page.until(f"({row}).includes('blocked until')", "it is blocked")
    assert check(service, ip) == 429
    page.click("[aria-label='End block per-ip']")
    page.click("#confirm-yes")
    closed(page)
    page.until(f"!({row}).includes('blocked until')", "the block has ended")
    page.click("[aria-label='Grant per-ip']")
    page.until("document.querySelector('#confirm').open", "it asks how many")
    page.write("#extra", "7")
    page.click("#confirm-yes")
    closed(page)
    page.until(f"({row}).includes('10 of 10')", "it has more")
    assert newest(service)["what"].startswith(f"grant 7 more to ip={ip} under per-ip")


def test_a_secret_of_a_caller_is_no_part_of_its_address(page: Page, service: Service) -> None:
    rule = {"match": {"endpoint": "/keys"}, "key_by": "api_key", "limit": "5/minute"}
    assert admin(service, "PUT", "/rules/by-key", json=rule).status_code == 200
    go(page, "callers")
    page.until("document.querySelector('#caller-api_key')", "callers have keys")
    page.write("#caller-api_key", "sesame")
    page.click("#caller-form button")
    page.until("location.hash.startsWith('#/callers/api_key%3D~')", "its page is open")
    assert "sesame" not in page.evaluate("location.href")
    page.until("document.querySelector('#caller-limits tbody tr')", "its limits are shown")
    assert "5 of 5" in page.text("#caller-limits")


def test_rules_and_callers_are_found(page: Page, service: Service) -> None:
    for _ in range(5):
        check(service, "198.51.100.6")
    page.write("#search", "search")
    page.press("Enter")
    page.until("document.querySelector('#results a')", "there are results")
    assert page.evaluate("location.hash") == "#/search?q=search"
    assert page.text("#results a") == "searches"
    page.write("#search", "198.51.100.6")
    page.press("Enter")
    found = "[...document.querySelectorAll('#results a')].map((one) => one.innerText)"
    page.until(f"{found}.includes('ip=198.51.100.6')", "a busy caller")
    page.click("#results button:last-child")
    page.until("location.hash === '#/callers/ip%3D198.51.100.6'", "any caller")


def test_requests_are_explained(page: Page, service: Service) -> None:
    for _ in range(4):
        check(service, "198.51.100.2")
    go(page, "explain")
    page.write("#explain-path", "/api/items")
    page.write("#explain-ip", "198.51.100.2")
    page.write("#explain-headers", "x-api-key: <b>k</b>\nX-Other: 1")
    page.click("#explain-form button")
    page.until("document.querySelector('#explained table')", "it is explained")
    assert page.text("#explain-lead") == "The request would be denied. Denied by per-ip."
    details = "document.querySelector('#explained details')"
    assert "searches" in page.evaluate(f"{details}.textContent")
    page.write("#explain-headers", "no header")
    page.click("#explain-form button")
    page.until("document.querySelector('#explained .bad')", "the wrong header is reported")
    page.write("#explain-headers", "")
    page.write("#explain-path", "/search")
    page.click("#explain-form button")
    page.until("document.querySelector('#explain-lead.good')", "it would be allowed")


PLACES = (
    *("overview", "rules", "rules/per-ip", "callers", "callers/ip=192.0.2.1", "health"),
    *("policy", "explain", "search?q=per"),
)


def test_a_phone_needs_no_scrolling_to_the_side(browser: Browser, service: Service) -> None:
    with dashboard(browser, service, width=320) as page:
        for place in PLACES:
            go(page, place)
            assert page.evaluate("document.documentElement.scrollWidth") <= 320, place
        go(page, "rules")
        for scheme in ("light", "dark"):
            page.look(320, 800, scheme=scheme)
            page.click("#rules-table td button")
            page.until("document.querySelector('#editor').open", "the editor is open")
            assert page.evaluate("document.querySelector('#editor').scrollWidth") <= 320
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            dark = sum(int(one) for one in ground.strip("rgb()").split(",")) < 200
            assert dark == (scheme == "dark")
            page.press("Escape")
            closed(page)


CUT_OFF = """
[...document.querySelectorAll(".scrollable")]
  .filter((one) => one.offsetParent && one.scrollWidth > one.clientWidth + 1)
  .map((one) => `${one.querySelector("caption")?.innerText} ${one.scrollWidth} ${one.clientWidth}`)
"""
"""Tables with columns beyond the edge."""


@pytest.mark.parametrize("width", [360, 768, 1024, 1280, 1440, 1920])
def test_no_column_is_beyond_the_edge(browser: Browser, service: Service, width: int) -> None:
    name = "a-rule-with-quite-a-long-name-of-several-words"
    rule = {"match": {"endpoint": f"/v2/{name}/**"}, "key_by": "ip", "limit": "7/hour; 90/week"}
    assert admin(service, "PUT", f"/rules/{name}", json=rule).status_code == 200
    for _ in range(9):
        check(service, "198.51.100.7", f"/v2/{name}/x")
    with dashboard(browser, service, width=width) as page:
        page.until(f"document.querySelector('main').innerText.includes('{name}')", "the rule")
        for place in (*PLACES, f"rules/{name}", "callers/ip=198.51.100.7"):
            go(page, place)
            if place.startswith("callers/"):
                page.until("document.querySelector('#caller-limits tbody tr')", "the limits")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, place
            assert page.evaluate(CUT_OFF) == [], place


def test_all_text_can_be_read_against_its_ground(page: Page, service: Service) -> None:
    for _ in range(5):
        check(service, "198.51.100.3")
    page.until("document.querySelector('#rules-table .is-denied')", "denials are shown")
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    for scheme in ("light", "dark"):
        page.look(1200, 800, scheme=scheme)
        for place in PLACES:
            go(page, place)
            assert page.evaluate(CONTRAST) == [], place


OTHER_NAMES = """
[...document.querySelectorAll("button[aria-label], a[aria-label]")]
  .filter((one) => one.offsetParent && !one.ariaLabel.startsWith(one.innerText.trim()))
  .map((one) => `${one.innerText}: ${one.ariaLabel}`)
"""
"""What a screen reader says otherwise than it is written."""


def test_everything_that_can_be_used_has_a_name(page: Page) -> None:
    found = list(page.controls())
    assert [role for role, name in found if not name.strip()] == []
    roles = [role for role, _ in found]
    assert {"button", "combobox", "searchbox", "link"} <= set(roles)
    for place in PLACES:
        go(page, place)
        assert [role for role, name in page.controls() if not name.strip()] == [], place
        assert page.evaluate(OTHER_NAMES) == [], place
    go(page, "rules")
    page.click("#rules-table td button")
    page.until("document.querySelector('#editor').open", "the editor is open")
    assert [role for role, name in page.controls() if not name.strip()] == []


def test_the_keyboard_is_enough(page: Page) -> None:
    page.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.press("Enter")
    reached: list[str] = []
    focused = "document.activeElement"
    for _ in range(60):
        page.press("Tab")
        reached.append(page.evaluate(f"{focused}.id || {focused}.ariaLabel || {focused}.innerText"))
        if reached[-1] == "Edit per-ip":
            break
    assert {"rules-filter", "rules-order", "rule-new", "per-ip", "Edit per-ip"} <= set(reached)
    seen = "parseFloat(getComputedStyle(document.activeElement).outlineWidth) >= 2"
    assert page.evaluate(seen)
    page.press("Enter")
    page.until("document.activeElement.id === 'editor-text'", "the focus is in the editor")
    page.press("Escape")
    page.until(
        "document.activeElement.ariaLabel === 'Edit per-ip'", "the focus is where it was before"
    )


def test_a_token_that_may_only_read_sees_all_and_is_told_why_it_changes_nothing(
    browser: Browser, service: Service
) -> None:
    with dashboard(browser, service, READER) as page:
        page.until("document.querySelector('#rule-new').disabled", "buttons are locked")
        assert page.text("#writes-note").startswith("The token “<b>eve</b>” is read-only")
        page.click("#rules-table td button")
        page.until("document.querySelector('#editor').open", "the rule can be read")
        buttons = "[...document.querySelectorAll('[data-writes]')]"
        locked = f"{buttons}.every((one) => one.disabled && one.title)"
        assert page.evaluate(locked)
        page.click("#editor-preview")
        page.until("document.querySelector('#editor-result').innerText", "a preview is a look")
        assert page.evaluate(locked)


def test_a_rule_that_is_edited_is_enforced_and_rolled_back(page: Page, service: Service) -> None:
    ip = "192.0.2.11"
    revision = newest(service)["revision"]
    assert [check(service, ip) for _ in range(3)] == [200, 200, 200]
    assert check(service, ip) == 429
    edit(page, "per-ip", {"match": {"endpoint": "/api/**"}, "key_by": "ip", "limit": "6/hour"})
    page.click("#editor-preview")
    page.until("document.querySelector('#editor-result ins')", "the preview is there")
    assert "3/hour → 6/hour" in page.text("#editor-result")
    assert page.text("#editor-result .badge") == "looser"
    assert page.text("#editor-result").count("6/h") == 1, "the difference is shown once"
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
    go(page, "policy")
    page.until("document.querySelector('#history').innerText.includes('4711')", "in the history")

    page.click(f"[aria-label='Roll back to revision {revision}']")
    page.until("document.querySelector('#confirm del')", "what would change is shown")
    assert "6/hour → 3/hour" in page.text("#confirm")
    page.write("#confirm-reason", "it was too much")
    page.click("#confirm-yes")
    closed(page)
    assert newest(service)["note"] == "it was too much"
    assert check(service, "192.0.2.12") == 200
    assert service.check("192.0.2.12", path="/api/items").headers["x-ratelimit-limit"] == "3"


def test_what_is_wrong_is_told_in_its_line_and_changes_nothing(
    page: Page, service: Service
) -> None:
    revision = newest(service)["revision"]
    page.click("[aria-label='Edit per-ip']")
    page.until("document.querySelector('#editor').open", "the editor is open")
    text = page.evaluate("document.querySelector('#editor-text').value")
    assert text.startswith("match:\n  endpoint: /api/**\nkey_by: ip\nlimit: 3/hour\n")
    page.write("#editor-text", text.replace("key_by: ip", "key_by: api_kee"))
    for button in ("#editor-preview", "#editor-apply"):
        page.click(button)
        page.until("document.querySelector('#editor-findings li')", "the error is shown")
        finding = page.text("#editor-findings li")
        assert finding.startswith("line 3, column 1: key_by: 'api_kee' is not a part of a key")
        assert "did you mean 'api_key'?" in finding
        wrong = page.text("#editor-overlay .is-wrong")
        assert wrong.startswith("key_by: api_kee  \u2190 'api_kee' is not a part of a key")
        area = "document.querySelector('#editor-text')"
        assert page.evaluate(f"{area}.ariaInvalid") == "true"
        chosen = f"{area}.value.slice({area}.selectionStart, {area}.selectionEnd)"
        assert page.evaluate(chosen) == "key_by: api_kee"
        assert page.evaluate("document.activeElement.id") == "editor-text"
    page.write("#editor-text", "key_by: ip\nlimit: [3/hour")
    page.click("#editor-apply")
    findings = "document.querySelector('#editor-findings').innerText"
    page.until(f"{findings}.includes('line 3, column 1: not YAML')", "the error is shown")
    page.write("#editor-reason", "\u2603")
    page.write("#editor-text", '{"key_by": "ip", "limit": "5/hour"}')
    page.click("#editor-apply")
    page.until(f"{findings}.includes('reason')", "the error is shown")
    assert newest(service)["revision"] == revision


def test_what_somebody_else_has_changed_meanwhile_is_shown_and_not_overwritten(
    page: Page, service: Service
) -> None:
    mine = {"key_by": "ip", "limit": "1/s"}
    edit(page, "searches", mine)
    other = {"key_by": "ip", "limit": "77/s"}
    assert admin(service, "PUT", "/rules/searches", json=other).status_code == 200
    page.click("#editor-apply")
    page.until("document.querySelector('#editor-theirs')", "the message is shown")
    assert admin(service, "GET", "/rules/searches").json()["rule"] == other
    assert "limit: 77/s" in page.text("#editor-findings pre")
    assert '"1/s"' in page.evaluate("document.querySelector('#editor-text').value")
    page.click("#editor-mine")
    page.click("#editor-apply")
    closed(page)
    assert admin(service, "GET", "/rules/searches").json()["rule"] == mine
    edit(page, "searches", {"key_by": "ip", "limit": "2/s"})
    assert admin(service, "PUT", "/rules/searches", json=other).status_code == 200
    page.click("#editor-apply")
    page.click("#editor-theirs")
    page.until("document.querySelector('#editor-text').value.includes('77/s')", "theirs is there")


def test_what_was_written_is_not_lost_by_one_key(page: Page) -> None:
    edit(page, "searches", {"key_by": "ip", "limit": "1/s"})
    page.press("Escape")
    page.until("document.querySelector('#editor-findings').innerText", "the message is shown")
    assert page.evaluate("document.querySelector('#editor').open")
    page.click("#editor [data-close]")
    closed(page)


def test_a_rule_is_switched_off_and_on_made_and_deleted(page: Page, service: Service) -> None:
    page.click("[aria-label='Edit per-ip']")
    page.click("#editor-switch")
    page.click("#confirm-yes")
    closed(page)
    assert {check(service, "192.0.2.21") for _ in range(9)} == {200}
    page.click("[aria-label='Edit per-ip']")
    page.until("document.querySelector('#editor-switch').innerText === 'Switch on'", "it is off")
    page.click("#editor-switch")
    page.click("#confirm-yes")
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
    page.until("document.querySelector('#confirm').open", "it asks before")
    page.click("#confirm-yes")
    closed(page)
    assert admin(service, "GET", "/rules/made-here").status_code == 404


def test_a_candidate_is_tried_beside_a_rule_and_adopted(page: Page, service: Service) -> None:
    edit(page, "per-ip", {})
    stricter = "match: {endpoint: /api/**}\nmode: enforce\nkey_by: ip\nlimit: 1/hour\n"
    page.write("#editor-text", stricter)
    page.click("#editor-try")
    closed(page)
    for _ in range(3):
        assert check(service, "192.0.2.31") == 200
    cards = "document.querySelector('#candidate-list').innerText"
    sentence = "per-ip-candidate would have denied 2 requests of 1 caller since "
    page.until(f"{cards}.includes({json.dumps(sentence)})", "the card shows its denials")
    assert "; per-ip allowed all of them" in page.text("#candidate-list")
    page.click("[aria-label='Adopt per-ip-candidate']")
    page.until("document.querySelector('#confirm').open", "it asks before")
    assert "3/hour → 1/hour" in page.text("#confirm")
    page.click("#confirm-yes")
    closed(page)
    page.until("!document.querySelector('[aria-label=\"Adopt per-ip-candidate\"]')", "it is gone")
    assert admin(service, "GET", "/rules/per-ip").json()["rule"]["limit"] == "1/hour"
    assert admin(service, "GET", "/rules/per-ip-candidate").status_code == 404


def test_a_candidate_is_discarded(page: Page, service: Service) -> None:
    edit(page, "searches", {"key_by": "ip", "limit": "1/s"})
    page.click("#editor-try")
    closed(page)
    page.click("[aria-label='Discard searches-candidate']")
    page.until("document.querySelector('#confirm').open", "it asks before")
    page.click("#confirm-yes")
    closed(page)
    assert admin(service, "GET", "/rules/searches-candidate").status_code == 404
    assert admin(service, "GET", "/rules/searches").status_code == 200


def test_what_a_revision_changed_can_be_looked_at(page: Page, service: Service) -> None:
    changed = {"key_by": "ip", "limit": "55/s", "description": "<script>alert(1)</script>"}
    assert admin(service, "PUT", "/rules/searches", json=changed).status_code == 200
    revision = newest(service)["revision"]
    go(page, "policy")
    page.click(f"[aria-label='Show the changes of revision {revision}']")
    page.until("document.querySelector('#confirm ins')", "it is shown")
    assert "100/s → 55/s" in page.text("#confirm")
    assert "<script>alert(1)</script>" in page.text("#confirm")
    page.press("Escape")
    closed(page)
