"""The dashboard with replies that a test writes: hostile ones, none at all, always the same."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.support.dashboard import go, opened
from tests.support.dashboard_fakes import (
    POLICY,
    RULE,
    STORE,
    FakeService,
    history,
    live,
    rules,
    traffic,
)
from tests.support.servers import wait_until
from tests.support.servers.browser import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator

HOSTILE = "<img src=x onerror=\"document.title='taken'\">\"'&\u202e\x00\n`${7*7}`"
IS_OPEN = "document.querySelector('#history tbody tr')"
FAST = 20
"""A second of the page is so many times shorter."""
HEARD_STATE = """
window.heard = [];
const state = document.querySelector("#state");
new MutationObserver(() => window.heard.push(state.textContent))
  .observe(state, {childList: true, subtree: true, characterData: true});
"""
"""What the line at the top says from now on."""
LISTENED = """
window.heard = 0;
const announced = "[aria-live],[role=status],[role=alert]";
for (const one of document.querySelectorAll(announced)) {
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
    """A service whose replies the test writes."""
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
    texts = dict.fromkeys(("author", "time", "what", "note"), HOSTILE)
    fake.replies["/admin/v1/history"] = history(**texts)
    rule = {"key_by": HOSTILE, "limit": HOSTILE, "match": {HOSTILE: HOSTILE}}
    fake.replies["/admin/v1/rules"] = rules(HOSTILE, rule | {"description": HOSTILE})
    with opened(browser, f"{fake.url}/#token=x") as page:
        page.until(IS_OPEN, "all is there")
        page.until("document.querySelector('#candidate-list .candidate')", "candidates are there")
        shown = 0
        for place in ("", "rules", "callers", "health", "policy", f"rules/{quote(HOSTILE)}"):
            go(page, place)
            assert page.evaluate("document.title") != "taken"
            assert page.evaluate("document.querySelectorAll('main img').length") == 0
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), place
            shown += page.text().count("<img src=x")
        assert shown > 25


def test_it_says_that_the_service_is_gone_asks_ever_less_often_and_recovers(
    browser: Browser, fake: FakeService
) -> None:
    level = "document.querySelector('#state').dataset.level"
    with browser.page() as page:
        page.hurry(FAST)
        page.open(f"{fake.url}/#token=x")
        page.until(f"{level} === 'good'", "it is ready")
        replies, fake.replies = fake.replies, {}
        page.until("document.body.classList.contains('is-stale')", "it is gone")
        page.until("document.querySelector('#state').innerText.includes('every 15')", "it waits")
        assert page.text("#state").startswith("No response since ")
        fake.replies = replies
        page.until(f"{level} === 'good'", "it is back")
        assert not page.evaluate("document.body.classList.contains('is-stale')")
        with fake.lock:
            fake.statuses["/admin/v1/live"] = 500
            fake.replies = replies | {"/admin/v1/live": {"detail": "out of memory"}}
        page.until(f"{level} === 'bad'", "there are no figures")
        page.evaluate(HEARD_STATE)
        before = len(fake.asked)
        wait_until(lambda: len(fake.asked) > before + 6, "it has tried again some times")
        state = page.text("#state")
        assert state.startswith("No data since ")
        assert "(out of memory)" in state
        heard = page.evaluate("window.heard")
        assert not [one for one in heard if one.startswith(("Healthy", "Degraded"))], (
            "only one state is reported"
        )


def test_it_does_not_ask_while_nobody_looks(browser: Browser, fake: FakeService) -> None:
    with opened(browser, f"{fake.url}/#token=x", times=FAST) as page:
        page.until(IS_OPEN, "it is open")
        page.evaluate(look_away(is_hidden=True))

        def is_quiet() -> bool:
            before = len(fake.asked)
            time.sleep(0.5)  # in which it would have asked ten times
            return len(fake.asked) == before

        wait_until(is_quiet, "what was under way has been answered")
        assert is_quiet()
        before = len(fake.asked)
        page.evaluate(look_away(is_hidden=False))
        wait_until(lambda: len(fake.asked) > before, "it asks again")


def test_a_token_that_is_taken_back_is_told_and_asked_for(
    browser: Browser, fake: FakeService
) -> None:
    with opened(browser, f"{fake.url}/#token=x", times=FAST) as page:
        page.until(IS_OPEN, "it is open")
        with fake.lock:
            fake.statuses["/admin/v1/live"] = 401
            fake.replies["/admin/v1/live"] = {"detail": "the token is not known"}
        page.until("document.body.dataset.access === 'locked'", "it is locked")
        assert page.text("#token-error") == "The token is not known."
        assert page.evaluate("getComputedStyle(document.querySelector('#rules')).display") == "none"


def test_a_service_without_an_admin_api_says_so(browser: Browser, fake: FakeService) -> None:
    fake.statuses["/admin/v1/live"] = 404
    with browser.page() as page:
        page.open(f"{fake.url}/")
        page.until("document.body.dataset.access === 'closed'", "the message is shown")
        assert page.text("#closed").startswith("This service has no admin API")


def test_it_works_below_a_path_of_a_proxy(browser: Browser) -> None:
    with FakeService("/tools/headgate") as fake:
        with opened(browser, f"{fake.url}/#token=x") as page:
            page.until(IS_OPEN, "it is open")
        assert {one.startswith("/tools/headgate/") for one in fake.asked} == {True}


def test_what_is_read_out_does_not_change_each_second(browser: Browser, fake: FakeService) -> None:
    with opened(browser, f"{fake.url}/#token=x", times=FAST) as page:
        page.until(IS_OPEN, "it is open")
        page.evaluate(LISTENED)
        before = page.text("#tiles")
        series = {"allowed": [7] * 120, "denied": [2] * 120}
        shown = live()
        shown["series"]["requests"] = series
        fake.replies["/admin/v1/live"] = shown
        tiles = "document.querySelector('#tiles').innerText"
        page.until(f"{tiles} !== {json.dumps(before)}", "the figures change")
        assert page.evaluate("window.heard") == 0


def test_all_requests_are_not_those_of_all_rules_added_up(
    browser: Browser, fake: FakeService
) -> None:
    every = {"allowed": [40] * 120, "denied": [20] * 120, "shadow_denied": [4] * 120}
    figures = live()
    figures["series"]["rules"] = {f"r{number}": every for number in range(3)}
    figures["series"]["requests"] = {"allowed": [30] * 120, "denied": [10] * 120}
    fake.replies["/admin/v1/live"] = figures
    requests = {"allowed": [30] * 300, "denied": [10] * 300, "shadow_denied": [12] * 300}
    fake.replies["/admin/v1/traffic"] = traffic(requests=requests)
    with opened(browser, f"{fake.url}/#token=x") as page:
        page.until(IS_OPEN, "it is open")
        assert page.text("#tiles").split()[:3] == ["Allowed", "/s", "30"]
        assert "25 %" in page.text("#tiles")
        label = "document.querySelector('#chart svg').getAttribute('aria-label')"
        page.until(label, "the chart says in words what it shows")
        text = page.evaluate(label)
        assert "Requests per second, the last 5 min: allowed 30/s on average" in text
        assert "denied 10/s on average, 10/s at most; shadow-denied 12/s on average" in text


def test_rules_are_read_anew_after_the_service_was_started_again(
    browser: Browser, fake: FakeService
) -> None:
    with opened(browser, f"{fake.url}/#token=x", times=FAST) as page:
        page.until(IS_OPEN, "it is open")
        fake.replies["/admin/v1/rules"] = rules("r", {"key_by": "ip", "limit": "9/minute"})
        fake.replies["/admin/v1/live"] = live(began=time.time())
        shown = "document.querySelector('#rules-table').innerText"
        page.until(f"{shown}.includes('9 per minute')", "the rules of revision 1 are others now")


def test_rules_that_cannot_be_read_are_in_force_all_the_same(
    browser: Browser, fake: FakeService
) -> None:
    gone = RULE | {"rule_id": "gone", "mode": None}
    fake.replies["/admin/v1/live"] = live(rules=[RULE, gone])
    why = "rules.yaml:3:1: error: not YAML"
    fake.statuses = dict.fromkeys(("/admin/v1/rules", "/admin/v1/history"), 503)
    read = {path: fake.replies[path] for path in fake.statuses}
    fake.replies |= {path: {"status": 503, "detail": why} for path in read}
    with opened(browser, f"{fake.url}/#token=x", times=FAST) as page:
        page.until("!document.querySelector('#rules-error').hidden", "it says so")
        assert why in page.text("#rules-error")
        assert "The rules in force stay in force" in page.text("#rules-error")
        subs = "[...document.querySelectorAll('#rules-table .sub')]"
        texts = page.evaluate(f"{subs}.map((one) => one.innerText)")
        assert texts == ["in force", "no longer in the policy"]
        assert "Revision 1 is in force" in page.text("#policy-state")
        go(page, "policy")
        assert page.text("#history").strip() == f"R{why[1:]}"
        for path in ("/admin/v1/rules", "/admin/v1/history"):
            with fake.lock:
                del fake.statuses[path]
                fake.replies[path] = read[path]
            page.until("document.querySelector('#rules-error').hidden", "they can be read again")
        go(page, "rules")
        page.until("document.querySelector('#rules-table').innerText.includes('5 per')", "rules")
        history = "document.querySelector('#history').innerText"
        page.until(f"{history}.includes('begin')", "the history can be read again")
        page.complaints[:] = [one for one in page.complaints if "status of 503" not in one]


def test_a_source_that_is_no_store_is_seen_while_it_decides(
    browser: Browser, fake: FakeService
) -> None:
    sources = {"store": 9, "sync": 7, "fail_open": 3}
    recent = {"store": 5.0, "sync": 1.0, "fail_open": 3.0}
    fake.replies["/admin/v1/live"] = live(
        rules=[RULE | {"sources": sources, "sources_per_second": recent}]
    )
    with opened(browser, f"{fake.url}/#token=x", times=FAST) as page:
        page.until("document.querySelector('#rules-table .badge.warning')", "it was so just now")
        failing = STORE | {"state": "open", "fail_mode": 1, "reason": "timeout", "open_for": 0.19}
        now = {"sources": sources, "sources_per_second": {"fail_open": 12.0}}
        fake.replies["/admin/v1/live"] = live(rules=[RULE | now], store=failing)
        page.until("document.querySelector('#rules-table .badge.bad')", "it is so now")
        assert page.text("#rules-table .badge.bad") == "fail_open 12/s"
        expected = "Degraded: Memory: circuit open (timeout); rules apply their on_store_failure"
        assert page.text("#state") == expected
        assert "Memory: circuit open for 190 ms" in page.text("#facts")
        place = "document.querySelector('#rules-table .scrollable')"
        assert page.evaluate(f"{place}.scrollWidth <= {place}.clientWidth"), "no Edit out of sight"
        over = {"sources": sources, "sources_per_second": {"store": 12.0}}
        fake.replies["/admin/v1/live"] = live(rules=[RULE | over])
        badge = "document.querySelector('#rules-table .sources .badge')"
        page.until(f"!{badge}", "the outage has ended")
        assert page.text("#state") == "Healthy"


def test_an_outage_is_a_band_and_unknown_time_is_a_gap(browser: Browser, fake: FakeService) -> None:
    end, outage = 1_900_000_000, [int(40 <= n < 52) for n in range(300)]
    recorded = [int(n >= 30 and not 60 <= n < 70) for n in range(300)]
    requests = {"allowed": [5] * 300, "denied": [0] * 300, "shadow_denied": [2] * 300}
    latency = {name: [0.001 if one else None for one in recorded] for name in ("p50", "p90", "p99")}
    fake.replies["/admin/v1/traffic"] = traffic(
        end=end, outage=outage, seconds=recorded, requests=requests, latency=latency
    )
    with opened(browser, f"{fake.url}/#token=x", times=FAST) as page:
        page.until("document.querySelector('#chart rect.outage')", "the band is drawn")
        box = "document.querySelector('#chart rect.outage').getAttribute"
        assert page.evaluate(f"Number({box}('width'))") == pytest.approx(12 * 600 / 299, abs=0.2)
        assert "store unavailable" in page.text("#chart .legend")
        assert "gap: no data" in page.text("#chart .legend")
        for chart, line in (("#chart", ".line-shadow_denied"), ("#latency-chart", ".line-p99")):
            place = json.dumps(f"{chart} {line}")
            parts = page.evaluate(f"document.querySelector({place}).getAttribute('d')").split("M")
            assert [part.count("L") + 1 for part in parts[1:]] == [30, 230]
            assert parts[1].startswith(f"{round(30 * 600 / 299, 1)},")


def test_keys_that_only_a_rule_in_shadow_refuses_are_told_to_be_such(
    browser: Browser, fake: FakeService
) -> None:
    tried = RULE | {"rule_id": "tried", "mode": "shadow"}
    rate = {"key": "k", "per_second": 5.0, "at_most": 5.0}
    keys = [{"rule_id": name, **rate} for name in ("r", "tried")]
    fake.replies["/admin/v1/live"] = live(rules=[RULE, tried], refused_keys=keys)
    with opened(browser, f"{fake.url}/#token=x", times=FAST) as page:
        page.until("document.querySelector('#most-denied tbody tr')", "they are there")
        links = "[...document.querySelectorAll('#most-denied td a')].map((one) => one.innerText)"
        assert page.evaluate(links) == ["r", "tried (shadow)"]


def test_many_rules_are_shown_in_pages(browser: Browser, fake: FakeService) -> None:
    each = (rules(f"r{n}", {"key_by": "ip", "limit": "9/s"})["rules"] for n in range(60))
    written = [one for some in each for one in some]
    fake.replies["/admin/v1/rules"] = {"next_offset": None, "rules": written}
    busy = {n: {"allowed": float(n), "denied": 0.0} for n in range(60)}
    counted = [RULE | {"rule_id": f"r{n}", "per_second": pace} for n, pace in busy.items()]
    fake.replies["/admin/v1/live"] = live(rules=counted)
    names = "[...document.querySelectorAll('#rules-table .name')].map((one) => one.innerText)"
    with opened(browser, f"{fake.url}/#token=x", times=FAST) as page:
        page.until(f"{names}.length === 8", "the overview has the busiest")
        assert page.evaluate(names)[:2] == ["r59", "r58"]
        page.click("#rules-table .pager a")
        page.until(f"{names}.length === 20", "a page of them")
        assert "1 to 20 of 60" in page.text("#rules-table .pager")
        page.click("#rules-table .pager button:nth-of-type(2)")
        page.until(f"{names}[0] === 'r20'", "the next page")
        assert page.evaluate("location.hash") == "#/rules?page=2"
        page.write("#rules-filter", "r4")
        page.until(f"{names}.length === 11", "those that match")


SENTENCES: list[tuple[Any, dict[str, Any], str]] = [
    ("tenant", {}, "would have denied 312 requests of 14 tenants since yesterday "),
    ("ip", {"keys": 1}, "would have denied 312 requests of 1 caller since yesterday "),
    ("global", {}, "would have denied 312 requests since yesterday "),
    (["tenant", "ip"], {"keys_exact": False}, "312 requests of about 14 callers since yesterday "),
    ("tenant", {"would_deny": 1, "newly_denied": 1, "keys": 1}, "denied 1 request of 1 tenant "),
    ("tenant", {"denied_anyway": 99}, "; rules in force denied 99 of them anyway; "),
    ("tenant", {"would_deny": 0, "newly_denied": 0}, "would have denied none of 9,000 requests "),
    ("tenant", {"requests": 0, "would_deny": 0}, "has seen no requests since yesterday "),
]


def test_a_candidate_is_told_in_a_sentence(browser: Browser, fake: FakeService) -> None:
    counted = {"requests": 9_000, "would_deny": 312, "keys": 14, "keys_exact": True}
    counted |= {"newly_denied": 300, "newly_allowed": 5, "denied_by_both": 12, "denied_anyway": 12}
    found, written = [], []
    for number, (key_by, figures, _) in enumerate(SENTENCES):
        names = {"rule_id": f"c{number}", "candidate_of": "live", "since": time.time() - 24 * 3600}
        found.append(names | counted | figures | {"last_day": counted | figures})
        written += rules(f"c{number}", {"key_by": key_by, "limit": "5/s"})["rules"]
    fake.replies["/admin/v1/live"] = live(candidates=found)
    fake.replies["/admin/v1/rules"] = {"next_offset": None, "rules": written}
    with opened(browser, f"{fake.url}/#token=x", times=FAST) as page:
        place = "document.querySelector('#candidate-list').innerText"
        page.until(f"{place}.includes('tenants')", "it is known who is counted")
        cards = page.text("#candidate-list").split("Adopt")
        for (_, _, sentence), card in zip(SENTENCES, cards, strict=False):
            assert sentence in card
        end = "; live allowed 300 of them; it would have allowed 5 requests that live denied."
        assert end in cards[0]


def test_nodes_that_share_a_store_are_listed(browser: Browser, fake: FakeService) -> None:
    one = {"node": "a:1", "allowed": 12.0, "denied": 3.0, "p99": 0.002, "store": "ok"}
    one |= {"revision": 7.0, "workers": 2.0, "digest": 5.0}
    other = one | {"node": "<b>:2", "store": "open", "denied": None, "digest": 6.0}
    fake.replies["/admin/v1/live"] = live(nodes=[one])
    with opened(browser, f"{fake.url}/#token=x", times=FAST) as page:
        page.until(IS_OPEN, "it is open")
        assert page.evaluate("document.querySelector('#nodes').hidden"), "it is alone"
        fake.replies["/admin/v1/live"] = live(nodes=[one, other])
        page.until("document.querySelectorAll('#nodes tbody tr').length === 2", "both are there")
        assert page.text("#nodes-lead").startswith("2 nodes share this store: together 24 allowed")
        rows = page.text("#nodes tbody").splitlines()
        cells = [cell.strip() for row in rows for cell in row.split("\t") if cell.strip()]
        own = ["a:1 this node", "healthy", "12", "3", "2 ms", "2", "7"]
        away = ["<b>:2", "circuit open", "12", "\u2013", "2 ms", "2", "7, other rules"]
        assert cells == [*own, *away]


def test_a_local_rule_says_who_counts_it(browser: Browser, fake: FakeService) -> None:
    fake.replies["/admin/v1/rules"] = rules(
        "r", {"key_by": "ip", "limit": "5/s", "decide": "local"}
    )
    fake.replies["/admin/v1/live"] = live(rules=[RULE | {"sources": {}}])
    row = "document.querySelector('#rules-table tbody tr').innerText"
    with opened(browser, f"{fake.url}/#token=x", times=FAST) as page:
        page.until(f"{row}.includes('in Envoy')", "nothing is known of it")
        pace = {"allowed": 4.0, "denied": 0.0}
        counted = {"sources": {"envoy": 9}, "sources_per_second": {"envoy": 4.0}}
        fake.replies["/admin/v1/live"] = live(rules=[RULE | counted | {"per_second": pace}])
        page.until(f"{row}.includes('envoy 4/s')", "the counters of Envoy are read")
        assert "in Envoy" not in page.evaluate(row)


def test_what_is_copied_is_the_whole_key(browser: Browser, fake: FakeService) -> None:
    key = {"rule_id": "r", "key": f"api_key=~{'0d3b5a91' * 4}", "per_second": 5.0, "at_most": 5.0}
    fake.replies["/admin/v1/live"] = live(busiest_keys=[key])
    with opened(browser, f"{fake.url}/#token=x") as page:
        page.until("document.querySelector('#busiest .copy')", "the key is there")
        assert page.text("#busiest .key code") == "api_key=~0d3b5a91…"
        page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        page.click("#busiest .copy")
        page.until("document.querySelector('#busiest .copy').innerText === 'Copied'", "it says so")
        assert page.evaluate("window.copied") == key["key"]
        assert page.evaluate("document.querySelector('#busiest .copy').ariaLabel") == (
            "Copy api_key=~0d3b5a91…"
        )
