"""The page of `headgate simulate --html`, in a real browser."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from headgate.simulator.report.html import html_report
from tests.support.replay_outcomes import HOSTILE, outcome, rule
from tests.support.servers.browser import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.servers.browser import Page

EXAMPLES = "examples/traces"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as one:
        yield one


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> str:
    """The address of the report that the docs show."""
    target = tmp_path_factory.mktemp("report") / "report.html"
    command = ["simulate", "today.yaml", "access.log", "--against", "proposed.yaml", "--html"]
    subprocess.run(  # noqa: S603 (our own command)
        [sys.executable, "-m", "headgate.cli", *command, str(target)],
        cwd=request.config.rootpath / EXAMPLES,
        check=True,
        capture_output=True,
        timeout=60,
    )
    return target.as_uri()


def _background(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_it_asks_nobody_for_anything_and_has_nothing_to_complain_of(
    browser: Browser, report: str
) -> None:
    with browser.page() as page:
        page.open(report)
        assert "88 more of 424 requests would have been denied" in page.text().replace("\xa0", " ")
        assert {url for url in page.requests if not url.startswith(("about:", "data:"))} == {report}
        assert not page.complaints


@pytest.mark.parametrize("width", [390, 1200])
def test_it_fits_a_phone_and_a_desk_and_its_plots_can_be_read(
    browser: Browser, report: str, width: int
) -> None:
    with browser.page() as page:
        page.look(width, 800)
        page.open(report)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        sizes = page.evaluate(
            "[...document.querySelectorAll('img')]"
            ".map(one => 13 * 4 / 3 * one.getBoundingClientRect().width / one.naturalWidth)"
        )
        assert len(sizes) == 7
        assert min(sizes) > 7.5  # pixels that the smallest text is high


def test_it_is_dark_for_who_likes_that_but_not_on_paper(browser: Browser, report: str) -> None:
    with browser.page() as page:
        page.open(report)
        page.look(1200, 800, scheme="light")
        assert _background(page) == "rgb(255, 255, 255)"
        page.look(1200, 800, scheme="dark")
        assert _background(page) == "rgb(13, 17, 23)"
        dark = {"name": "prefers-color-scheme", "value": "dark"}
        page.call("Emulation.setEmulatedMedia", media="print", features=[dark])
        assert _background(page) == "rgb(255, 255, 255)"


def test_a_screen_reader_is_told_what_the_plots_show(browser: Browser, report: str) -> None:
    with browser.page() as page:
        page.open(report)
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        told = [n["name"]["value"] for n in nodes if n.get("role", {}).get("value") == "image"]
        assert len(told) == 7
        assert told[0].startswith("Requests over time with today.yaml, 2026-03-03 09:00:25")


def test_hostile_names_run_nothing(browser: Browser, tmp_path: Path) -> None:
    bad = outcome(rule(HOSTILE, limit=HOSTILE, top=((HOSTILE, 9, 6),)), name=HOSTILE)
    target = tmp_path / "bad.html"
    target.write_text(html_report([bad], title=HOSTILE), encoding="utf-8")
    with browser.page() as page:
        page.open(target.as_uri())
        assert page.evaluate("document.querySelectorAll('img[src=x], script').length") == 0
        assert "</script><img src=x onerror=alert(1)>" in page.text("h1")
        assert not page.complaints
