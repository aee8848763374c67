"""The dashboard with answers that a test writes: hostile ones, none at all, ever the same."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.dashboard_driving import opened
from tests.integration.dashboard_fakes import POLICY, RULE, STORE, FakeService, history, live, rules
from tests.servers import wait_until
from tests.servers.browser import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator

HOSTILE = "<img src=x onerror=\"document.title='taken'\">\"'&\u202e\x00\n`${7*7}`"
IS_OPEN = "document.querySelector('#history tbody tr')"
LISTENED = """
window.heard = 0;
const said = "[aria-live],[role=status],[role=alert]";
for (const one of document.querySelectorAll(said)) {
  new MutationObserver(() => { window.heard += 1; })
    .observe(one, {childList: true, subtree: true, characterData: true});
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def fake() -> Iterator[FakeService]:
    """A service whose answers the test writes."""
    with FakeService() as fake:
        yield fake


def look_away(*, is_hidden: bool) -> str:
    """What makes a page believe that nobody sees it, or that somebody does."""
    value = "true" if is_hidden else "false"
    return (
        f"Object.defineProperty(document, 'hidden', {{value: {value}, configurable: true}});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )


def test_strangers_words_are_only_ever_text(browser: Browser, fake: FakeService) -> None:
    key = {"rule_id": HOSTILE, "key": HOSTILE, "per_second": 5.0, "at_most": 6.0}
    counted = {"requests": 9, "would_deny": 3, "keys": 2, "keys_exact": False}
    counted |= {"newly_denied": 1, "newly_allowed": 1}
    candidate = {"rule_id": HOSTILE, "candidate_of": HOSTILE, "since": 1.0, "last_day": counted}
    names = {"rule_id": HOSTILE, "mode": HOSTILE, "candidate_of": HOSTILE}
    queue = {"gate": HOSTILE, "waiting": 1, "in_flight": 1, "slots": 2, "wait_seconds": 0.1}
    trouble = {"url": HOSTILE, "state": "failing", "trouble": [HOSTILE], "errors": {HOSTILE: 1}}
    fake.replies["/admin/v1/live"] = live(
        rules=[RULE | names | {"sources": {HOSTILE: 3}}],
        busiest_keys=[key],
        refused_keys=[key],
        hot_keys=[key],
        candidates=[candidate | counted],
        bounds=[{"rule_id": HOSTILE, "units": 1, "holders": 1}],
        queues=[queue],
        store=STORE | trouble,
        policy=POLICY | {"trouble": HOSTILE, "problems": 1, "stale": True},
    )
    fake.replies["/readyz"] = {"status": "ready", "reasons": [HOSTILE]}
    said = dict.fromkeys(("author", "time", "what", "note"), HOSTILE)
    fake.replies["/admin/v1/history"] = history(**said)
    rule = {"key_by": HOSTILE, "limit": HOSTILE, "match": {HOSTILE: HOSTILE}}
    fake.replies["/admin/v1/rules"] = rules(HOSTILE, rule | {"description": HOSTILE})
    with opened(browser, f"{fake.url}/#token=x") as page:
        page.until(IS_OPEN, "all is there")
        page.until("document.querySelector('#candidate-list .candidate')", "candidates are there")
        assert page.evaluate("document.title") == "Headgate"
        assert page.evaluate("document.querySelectorAll('main img').length") == 0
        assert page.text().count("<img src=x") > 15
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_it_says_that_the_service_is_gone_asks_ever_less_often_and_recovers(
    browser: Browser, fake: FakeService
) -> None:
    level = "document.querySelector('#state').dataset.level"
    with browser.page() as page:
        page.open(f"{fake.url}/#token=x")
        page.until(f"{level} === 'good'", "it is ready")
        replies, fake.replies = fake.replies, {}
        page.until("document.body.classList.contains('is-stale')", "it is gone")
        page.until("document.querySelector('#state').innerText.includes('every 2')", "it waits")
        assert page.text("#state").startswith("No answer since ")
        fake.replies = replies
        page.until(f"{level} === 'good'", "it is back")
        assert not page.evaluate("document.body.classList.contains('is-stale')")


def test_it_does_not_ask_while_nobody_looks(browser: Browser, fake: FakeService) -> None:
    with opened(browser, f"{fake.url}/#token=x") as page:
        page.until(IS_OPEN, "it is open")
        page.evaluate(look_away(is_hidden=True))
        time.sleep(0.3)  # what was under way
        before = len(fake.asked)
        time.sleep(1.5)
        assert len(fake.asked) == before
        page.evaluate(look_away(is_hidden=False))
        wait_until(lambda: len(fake.asked) > before, "it asks again")


def test_what_is_read_out_does_not_change_each_second(browser: Browser, fake: FakeService) -> None:
    with opened(browser, f"{fake.url}/#token=x") as page:
        page.until(IS_OPEN, "it is open")
        page.evaluate(LISTENED)
        before = page.text("#tiles")
        fake.replies["/admin/v1/live"] = live(requests={"allowed": 170, "denied": 5})
        shown = "document.querySelector('#tiles').innerText"
        page.until(f"{shown} !== {json.dumps(before)}", "the figures change")
        assert page.evaluate("window.heard") == 0


def test_a_source_that_is_no_store_is_seen_while_it_decides(
    browser: Browser, fake: FakeService
) -> None:
    fake.replies["/admin/v1/live"] = live(rules=[RULE | {"sources": {"store": 9, "fail_open": 3}}])
    with opened(browser, f"{fake.url}/#token=x") as page:
        page.until("document.querySelector('#rules-table .badge.odd')", "it was so before")
        failing = STORE | {"state": "open", "fail_mode": 1}
        sources = {"store": 9, "fail_open": 8}
        fake.replies["/admin/v1/live"] = live(rules=[RULE | {"sources": sources}], store=failing)
        page.until("document.querySelector('#rules-table .badge.bad')", "it is so now")
        assert page.text("#rules-table .badge.bad") == "fail_open 8, now"
        assert page.text("#state").startswith("Ready, but: the store is given a rest")


def test_a_candidate_is_told_in_a_sentence(browser: Browser, fake: FakeService) -> None:
    counted = {"requests": 9_000, "would_deny": 312, "keys": 14, "keys_exact": True}
    counted |= {"newly_denied": 300, "newly_allowed": 5, "denied_by_both": 12}
    names = {"rule_id": "per-tenant-candidate", "candidate_of": "per-tenant"}
    since = time.time() - 24 * 3600
    fake.replies["/admin/v1/live"] = live(
        candidates=[names | counted | {"since": since, "last_day": counted}]
    )
    with opened(browser, f"{fake.url}/#token=x") as page:
        page.until("document.querySelector('#candidate-list .candidate')", "it is there")
        said = page.text("#candidate-list p")
        begin = "per-tenant-candidate would have denied 312 requests of 14 callers since yesterday "
        assert said.startswith(begin)
        end = "300 of them per-tenant let pass; it would have let pass 5 requests that per-tenant"
        assert said.endswith(f"; {end} denied.")
