"""The dashboard in a real browser: what is seen, by whom, on what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.dashboard_driving import (
    READER,
    TOKEN,
    check,
    dashboard,
    opened,
    serving_dashboard,
)
from tests.integration.serve_driving import Service, serving
from tests.servers.browser import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving_dashboard(tmp_path_factory.mktemp("service")) as service:
        yield service


def test_it_shows_how_the_service_stands_and_what_the_rules_are(
    browser: Browser, service: Service
) -> None:
    with dashboard(browser, service) as page:
        assert page.text("#state") == "Ready: decisions are made"
        assert "Store ok" in page.text("#facts")
        assert "Revision 1" in page.text("#facts")
        rows = page.text("#rules-table")
        assert "3 per hour for each ip" in rows
        assert "POST /search" in rows
        assert "begin with the file" in page.text("#history")
        assert page.evaluate("document.querySelector('[data-access]').dataset.access") == "open"


def test_the_token_is_taken_out_of_the_address_and_kept_in_the_tab_only(
    browser: Browser, service: Service
) -> None:
    with dashboard(browser, service) as page:
        assert page.evaluate("location.href") == f"{service.url}/"
        assert page.evaluate("Object.values(sessionStorage).join()") == TOKEN
        assert page.evaluate("localStorage.length + document.cookie.length") == 0
        assert all(TOKEN not in url.partition("#")[0] for url in page.requests)
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
            assert page.text("#state").startswith("Ready")
            page.write("#caller-ip", "192.0.2.1")
            page.click("#caller-form button")
            page.until("document.querySelector('#limits table')", "the limits are shown")
            assert "4 of 5" in page.text("#limits")


def test_traffic_is_seen_while_it_happens(browser: Browser, service: Service) -> None:
    with dashboard(browser, service) as page:
        for _ in range(6):
            check(service, "198.51.100.1")
        denied = "document.querySelector('#rules-table .is-denied').closest('tr').innerText"
        page.until(f"{denied}.startsWith('per-ip')", "the denials are seen")
        page.until("document.querySelector('#tiles .is-some')", "the figures say so")
        page.until(
            "document.querySelector('#refused')?.innerText.includes('198.51.100.1')", "the key"
        )
        page.until(
            "document.querySelector('#candidate-list').innerText.includes('would have denied')",
            "what the rule in shadow would have done is told",
        )
        page.click("#rules-table .name")
        assert page.evaluate("document.querySelector('#traffic-rule').value") == "per-ip"
        page.until(
            "document.querySelector('#chart svg').getAttribute('aria-label').includes('per-ip')",
            "the chart says in words what it shows",
        )
        page.click("[data-range=minutes]")
        page.until("document.querySelector('.times').innerText.startsWith('3 h ago')", "3 hours")


def test_requests_are_explained(browser: Browser, service: Service) -> None:
    for _ in range(4):
        check(service, "198.51.100.2")
    with dashboard(browser, service) as page:
        page.write("#explain-path", "/api/items")
        page.write("#explain-ip", "198.51.100.2")
        page.write("#explain-headers", "x-api-key: <b>k</b>\nX-Other: 1")
        page.click("#explain-form button")
        page.until("document.querySelector('#explained table')", "it is explained")
        assert page.text("#explained .lead") == "It would be denied. By per-ip."
        told = "document.querySelector('#explained details')"
        assert "searches" in page.evaluate(f"{told}.textContent")
        page.write("#explain-headers", "no header")
        page.click("#explain-form button")
        page.until("document.querySelector('#explained .bad')", "a wrong header is told")
        page.write("#explain-headers", "")
        page.write("#explain-path", "/search")
        page.click("#explain-form button")
        page.until("document.querySelector('#explained .good.lead')", "it would be allowed")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_scrolling_to_the_side(
    browser: Browser, service: Service, scheme: str
) -> None:
    with dashboard(browser, service, width=360, scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.click("#rules-table td button")
        page.until("document.querySelector('#editor').open", "the editor is open")
        assert page.evaluate("document.querySelector('#editor').scrollWidth") <= 360
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        dark = sum(int(one) for one in ground.strip("rgb()").split(",")) < 200
        assert dark == (scheme == "dark")


CONTRAST = """
(() => {
  const curved = (one) => (one <= .04045 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4);
  const part = (one) => curved(one / 255);
  const light = ([r, g, b]) => .2126 * part(r) + .7152 * part(g) + .0722 * part(b);
  const colour = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const found = colour(getComputedStyle(one).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const one of document.querySelectorAll("body *")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !one.getClientRects().length || one.disabled) continue;
    if (one.closest(".toast, option, noscript")) continue;
    const [a, b] = [light(colour(getComputedStyle(one).color)), light(ground(one))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) bad.push([one.tagName, one.className, one.textContent, ratio].join(" "));
  }
  return bad;
})()
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_against_its_ground(
    browser: Browser, service: Service, scheme: str
) -> None:
    for _ in range(5):
        check(service, "198.51.100.3")
    with dashboard(browser, service, scheme=scheme) as page:
        page.until("document.querySelector('#rules-table .is-denied')", "denials are shown")
        assert page.evaluate(CONTRAST) == []


def test_everything_that_can_be_used_has_a_name(browser: Browser, service: Service) -> None:
    with dashboard(browser, service) as page:
        found = list(page.controls())
        assert [role for role, name in found if not name.strip()] == []
        roles = [role for role, _ in found]
        assert {"button", "combobox", "textbox", "searchbox", "link"} <= set(roles)
        page.click("#rules-table td button")
        page.until("document.querySelector('#editor').open", "the editor is open")
        assert [role for role, name in page.controls() if not name.strip()] == []


def test_the_keyboard_is_enough(browser: Browser, service: Service) -> None:
    with dashboard(browser, service) as page:
        page.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
        page.press("Enter")
        reached: list[str] = []
        focused = "document.activeElement"
        for _ in range(60):
            page.press("Tab")
            reached.append(
                page.evaluate(f"{focused}.id || {focused}.ariaLabel || {focused}.innerText")
            )
            if reached[-1] == "Edit per-ip":
                break
        assert {"traffic-rule", "rules-filter", "rule-new", "per-ip", "Edit per-ip"} <= set(reached)
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
        assert page.text("#writes-note").startswith("The token “<b>eve</b>” may only read")
        page.click("#rules-table td button")
        page.until("document.querySelector('#editor').open", "the rule can be read")
        buttons = "[...document.querySelectorAll('[data-writes]')]"
        locked = f"{buttons}.every((one) => one.disabled && one.title)"
        assert page.evaluate(locked)
        page.click("#editor-preview")
        page.until("document.querySelector('#editor-result').innerText", "a preview is a look")
        assert page.evaluate(locked)
