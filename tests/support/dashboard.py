"""A service whose dashboard is open in a real browser."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.support.decision_service import PLAIN, Service, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

    from tests.support.servers.browser import Browser, Page

TOKEN = "correct-horse-battery"  # noqa: S105 - nobody's
READER = "reader-horse-battery"
RULES = """\
version: 1
identity:
  api_key: {header: x-api-key}
rules:
  - id: per-ip
    match: {endpoint: /api/**}
    key_by: ip
    limit: 3/hour
    description: <img src=x onerror=alert(1)>
  - {id: searches, match: {endpoint: /search, method: POST}, key_by: ip, limit: 100/s}
  - {id: watched, match: {endpoint: /api/**}, key_by: ip, limit: 1/hour, mode: shadow}
"""


def serving_dashboard(directory: Path, *flags: str) -> Any:
    """A service with two tokens, one that may change rules and one that may only read."""
    config = directory / "headgate.json"
    tokens = [
        {"name": "ada", "role": "write", "token": TOKEN},
        {"name": "<b>eve</b>", "role": "read", "token": READER},
    ]
    config.write_text(json.dumps({"admin_tokens": tokens, "dashboard_keys": "clear"}))
    return serving(directory, "--config", str(config), *flags, rules=RULES)


def check(service: Service, ip: str, path: str = "/api/items") -> int:
    """The status of one check."""
    return service.check(ip, path=path).status_code


def admin(service: Service, method: str, path: str, **more: Any) -> httpx.Response:
    """A call of the admin API."""
    headers = {"authorization": f"Bearer {TOKEN}", **more.pop("headers", {})}
    return PLAIN.request(method, f"{service.url}/admin/v1{path}", headers=headers, **more)


def newest(service: Service) -> dict[str, Any]:
    """The newest revision, as the history has it."""
    found: dict[str, Any] = admin(service, "GET", "/history?limit=1").json()["revisions"][0]
    return found


def go(page: Page, place: str) -> None:
    """Open another page of the dashboard."""
    page.evaluate(f"location.hash = {json.dumps(f'#/{place}')}")
    page.evaluate("new Promise((done) => setTimeout(done))")  # its handlers have run


def edit(page: Page, rule_id: str, rule: dict[str, Any]) -> None:
    """Open the editor of a rule, and write *rule* in place of it."""
    page.click(f"[aria-label='Edit {rule_id}']")
    page.until("document.querySelector('#editor').open", "the editor is open")
    page.write("#editor-text", json.dumps(rule, indent=1))


def closed(page: Page) -> None:
    """Wait until no dialog is open."""
    page.until("!document.querySelector('dialog[open]')", "the dialog has closed")


@contextmanager
def opened(
    browser: Browser, url: str, *, width: int = 1200, times: int = 1, **look: Any
) -> Iterator[Page]:
    """A new page at *url*, closed at the end. Its timers run *times* as fast.

    Fails if the page has sent a request to another host, or if the console has an error other than
    the statuses that the service sends on purpose (401, 403, 412, 422).
    """
    with browser.page() as page:
        page.look(width, 800, **look)
        if times > 1:
            page.hurry(times)
        page.open(url)
        yield page
        page.evaluate("1")  # receive the latest console messages
        own = urlsplit(url).netloc
        assert [one for one in page.requests if urlsplit(one).netloc not in (own, "")] == []
        expected = ("status of 401", "status of 403", "status of 412", "status of 422")
        unexpected = [one for one in page.complaints if not any(text in one for text in expected)]
        assert unexpected == []


@contextmanager
def dashboard(
    browser: Browser, service: Service, token: str = TOKEN, place: str = "rules", **look: Any
) -> Iterator[Page]:
    """A page of the dashboard of *service*, once it has the rules and the history."""
    mark = "&" if "?" in place else "?"
    with opened(browser, f"{service.url}/#/{place}{mark}token={token}", **look) as page:
        page.until("document.querySelector('#rules-table tbody tr .sub')", "the rules are there")
        page.until("document.querySelector('#history tbody tr')", "the history is there")
        yield page


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
"""Text that is not clear enough against its ground."""
