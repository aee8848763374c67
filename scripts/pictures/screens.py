"""Draws the pictures of pages in the docs: the dashboard, and a report of the simulator.

    python -m scripts.pictures.screens [--seconds 310]

A service with two workers is sent made-up traffic of some tenants, a script that guesses passwords
and a surge at the end; then Chromium takes a picture of its dashboard. It needs `chromium`, as
`make servers` installs it. Figures are of the moment: two pictures are never the same.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx

from headgate.cli import main as headgate
from tests.support.decision_service import serving
from tests.support.servers.browser import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
IMAGES: Final = ROOT / "docs" / "img"
TOKEN: Final = "a-token-of-some-length"  # noqa: S105 - nobody's
TICK: Final = 0.1
RULES: Final = """\
version: 1
identity:
  api_key: {header: x-api-key}
  tenant: {header: x-tenant-id}
  tier: {header: x-tier, default: free}
rules:
  - id: login-brute-force
    match: {endpoint: /login, method: POST}
    key_by: ip
    limit: 5/minute sliding_window_log
  - {id: per-tenant, match: {endpoint: /api/**}, key_by: tenant, limit: 35/s burst 60}
  - id: per-tier
    match: {endpoint: /api/**}
    key_by: api_key
    limits: {free: 10/s burst 20, paid: 100/s burst 200}
  - {id: exports, match: {endpoint: /export/pdf}, key_by: api_key, concurrency: 4}
  - {id: everybody, key_by: global, limit: 5000/s, mode: shadow}
"""
CANDIDATE: Final = {"match": {"endpoint": "/api/**"}, "key_by": "tenant", "limit": "20/s burst 20"}
TENANTS: Final = (
    ("acme", 30, "paid"),
    ("globex", 22, "paid"),
    ("initech", 9, "free"),
    ("hooli", 6, "free"),
)


def asked_in(moment: float, chance: random.Random, *, surge: bool) -> Iterator[dict[str, Any]]:
    """The requests of one tick, *moment* seconds after the first."""
    for tenant, rate, tier in TENANTS:
        wave = 1 + 0.4 * math.sin(moment / 9 + len(tenant)) + (1.4 if surge else 0)
        for _ in range(round(chance.expovariate(1 / (rate * wave * TICK)))):
            caller = {
                "x-tenant-id": tenant,
                "x-tier": tier,
                "x-api-key": f"{tenant}-{chance.randint(1, 3)}",
            }
            yield {
                "path": f"/api/{chance.choice(('orders', 'users', 'search'))}",
                "headers": caller,
            }
    if chance.random() < 0.6:
        yield {"method": "POST", "path": "/login", "ip": "203.0.113.66"}
    if chance.random() < 0.05:
        yield {"method": "POST", "path": "/login", "ip": f"192.0.2.{chance.randint(1, 99)}"}


async def send(url: str, seconds: float) -> None:
    """Traffic for so many *seconds*."""
    chance, began = random.Random(7), time.monotonic()
    limits = httpx.Limits(max_connections=40)
    async with httpx.AsyncClient(base_url=url, limits=limits, trust_env=False) as client:
        while (moment := time.monotonic() - began) < seconds:
            asked = list(asked_in(moment, chance, surge=moment > seconds - 15))
            await asyncio.gather(*[client.post("/v1/check", json=one) for one in asked])
            await asyncio.sleep(max(0.0, began + moment + TICK - time.monotonic()))


def dashboard(browser: Browser, directory: Path, seconds: float) -> None:
    """The picture of the dashboard."""
    env = {"HEADGATE_ADMIN_TOKEN": TOKEN}
    with serving(
        directory, "--workers", "2", "--store", "shm://screens", rules=RULES, env=env
    ) as service:
        admin = {"authorization": f"Bearer {TOKEN}", "x-change-note": "is 20/s enough?"}
        place = f"{service.url}/admin/v1/rules/per-tenant/candidate"
        httpx.post(place, json=CANDIDATE, headers=admin).raise_for_status()
        asyncio.run(send(service.url, seconds))
        with browser.page() as page:
            page.look(1200, 1120)
            page.open(f"{service.url}/#token={TOKEN}")
            page.until("document.querySelector('#history tbody tr')", "all of it is there")
            page.until("document.querySelector('#chart .area-allowed').getAttribute('d')", "chart")
            page.screenshot(IMAGES / "dashboard.png")
            page.look(1200, 1190)
            page.open(f"{service.url}/#/rules/per-tenant?token={TOKEN}")
            page.until("document.querySelector('#rule-history tbody tr')", "all of it is there")
            page.until("document.querySelector('#chart .area-allowed').getAttribute('d')", "chart")
            page.screenshot(IMAGES / "dashboard-rule.png")


def report(browser: Browser, directory: Path) -> None:
    """The picture of a report."""
    traces, page_file = ROOT / "examples" / "traces", directory / "report.html"
    policies = [str(traces / name) for name in ("today.yaml", "proposed.yaml")]
    call = ["simulate", policies[0], str(traces / "access.log"), "--against", policies[1]]
    assert headgate([*call, "--html", str(page_file)]) == 0
    with browser.page() as page:
        page.look(1100, 1290)
        page.open(page_file.as_uri())
        page.until("document.querySelector('svg')", "it is there")
        page.screenshot(IMAGES / "simulate-report.png")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=310.0, help="of traffic; 310 if not said")
    arguments = parser.parse_args(argv)
    with Browser() as browser, tempfile.TemporaryDirectory() as directory:
        report(browser, Path(directory))
        dashboard(browser, Path(directory), arguments.seconds)


if __name__ == "__main__":
    main()
