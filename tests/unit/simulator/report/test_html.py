"""The page: one file, harmless, the same each time, and clear without its pictures."""

import re
import sys
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from importlib import import_module

import pytest

from headgate.errors import MissingPackageError
from headgate.simulator.report.html import html_report
from headgate.simulator.results import Outcome
from tests.support.replay_outcomes import HOSTILE, outcome, rule

VOID = {"meta", "br", "img", "link", "input"}
BEFORE = outcome(rule(), rule("quiet", denied=(0, 0, 0), top=()), skipped=2)
AFTER = outcome(
    rule(limit="50/s", denied=(0, 9, 1), top=(("globex", 9, 8), ("initech", 9, 2))),
    name="new.yaml",
    denied=(0, 9, 1),
)
HARMFUL = outcome(rule(HOSTILE, mode=HOSTILE, limit=HOSTILE, top=((HOSTILE, 9, 6),)), name=HOSTILE)


class Page(HTMLParser):
    """What is in a page: its elements, their attributes, its text; complains of bad nesting."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.words))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@cache
def _text(*outcomes: Outcome, title: str = HOSTILE) -> str:
    return html_report(outcomes, title=title)


def _page(*outcomes: Outcome) -> Page:
    return Page(_text(*outcomes))


def test_the_conclusion_and_the_figures_are_said_in_words() -> None:
    page = _page(BEFORE)
    assert "6 (13 %) of 2 callers would have been denied; all by per-tenant." in page.text
    assert "2 lines of the trace are invalid" in page.text
    assert "<h1>" in _text(BEFORE)


def test_what_was_not_simulated_is_said_once() -> None:
    noted = replace(BEFORE, notes=(f"not simulated: {HOSTILE}",))
    text = _text(noted, replace(noted, policy_name="new.yaml"))
    assert Page(text).text.count("not simulated") == 1
    assert "<img src=x" not in text


def test_two_policies_stand_side_by_side() -> None:
    page = _page(BEFORE, AFTER)
    assert "With new.yaml instead of old.yaml, 4 more of 50 requests" in page.text
    assert "100/s -> 50/s" in page.text
    assert re.search(
        "newly limited by per-tenant.*initech.*relieved by per-tenant.*acme", page.text
    )


def test_every_plot_has_a_description_in_words() -> None:
    plots = _page(BEFORE, AFTER).named("img")
    assert len(plots) == 4
    assert all(plot["alt"] for plot in plots)
    assert "6 of 46" in str(plots[2]["alt"])


@pytest.mark.parametrize("outcomes", [(BEFORE,), (BEFORE, AFTER), (HARMFUL,)])
def test_nothing_is_requested_from_any_server_and_no_script_runs(
    outcomes: tuple[Outcome, ...],
) -> None:
    text = _text(*outcomes)
    page = Page(text)
    assert {tag for tag, _ in page.elements}.isdisjoint(("script", "link", "iframe"))
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "href"]
        assert str(attributes.get("src", "data:")).startswith("data:")
    assert "url(" not in text
    assert "://" not in text
    assert "default-src 'none'" in str(page.named("meta")[1]["content"])


def test_hostile_names_are_shown_as_they_are() -> None:
    text = _text(HARMFUL)
    assert "<img src=x" not in text
    assert "\x1b" not in text
    assert "</script><img src=x onerror=alert(1)>" in Page(text).text


def test_no_two_elements_share_an_id_and_no_plot_styles_the_page() -> None:
    text = _text(BEFORE, AFTER)
    assert " id=" not in text
    assert text.count("<style") == 1


def test_the_same_outcomes_give_the_same_page() -> None:
    assert html_report([BEFORE, AFTER], title=HOSTILE) == _text(BEFORE, AFTER)


@pytest.mark.parametrize(
    "odd",
    [
        outcome(allowed=(), denied=(), callers=0, callers_denied=0),
        outcome(rule(allowed=(0,), denied=(1,)), allowed=(0,), denied=(1,)),
        outcome(rule(), began_ns=0, step_ns=1),
    ],
    ids=["nothing", "one request", "nanoseconds"],
)
def test_odd_outcomes_make_a_page_too(odd: Outcome) -> None:
    assert _page(odd, odd).text


def test_only_so_many_rules_have_a_plot_but_all_are_in_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate.simulator.report.html._MOST_RULES", 2)
    page = _page(outcome(*[rule(f"rule-{n}", denied=(0, 0, n)) for n in range(1, 6)]))
    assert len(page.named("article")) == 2
    assert "3 rules more denied something" in page.text
    assert all(f"rule-{n}" in page.text for n in range(1, 6))


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "headgate.simulator.report.html")
    with pytest.raises(MissingPackageError, match=r"'matplotlib': pip install 'headgate\[plots\]'"):
        import_module("headgate.simulator.report.html")
