"""The first lines: how the service stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate.cli.top.ink import Line, Span, flowed, line, wrapped
from headgate.cli.top.words import amount, count_of, harmless, moment, span

if TYPE_CHECKING:
    from headgate.cli.top.ink import Style
    from headgate.cli.top.live import Live
    from headgate.cli.top.scene import Page, Scene

_STATES: Final = {"open": "is failing, and left alone for a moment"}
_TALL: Final = 18
"""Rows of a page where there is room for more than what matters most."""
_MOST_LINES: Final = 3


def header(scene: Scene, page: Page) -> list[Line]:
    """How it stands, in two lines where there is room. Troubles have lines of their own."""
    live = scene.live
    if live is None:
        asked = line(Span("headgate top", "bold"), f"  {_clean(scene.url, page)}")
        return [asked, *(_told(scene.trouble, "bad", page) or [line("asking...")])]
    lines = flowed(_service(live, scene, page), page.width)
    if page.height is None or page.height >= _TALL:
        lines += flowed(_store(live, page), page.width)
    lines += _told(scene.trouble, "bad", page)
    for trouble in (*live.store_troubles, *live.policy_troubles):
        lines += _told(trouble, "warn", page)
    return lines


def _service(live: Live, scene: Scene, page: Page) -> list[Line]:
    is_well = live.is_well and not scene.trouble
    state = Span("ok", "good") if is_well else Span("TROUBLE", "bad")
    version = f" {_clean(live.version, page)}" if live.version else ""
    revision = "no revision" if live.revision is None else f"revision {live.revision}"
    p50, p99 = (span(one, is_ascii=page.is_ascii) for one in (live.p50, live.p99))
    return [
        line(Span(f"headgate{version}", "bold"), " ", state),
        line(f"{revision}, {count_of(live.rule_count, 'rule')}"),
        line(count_of(live.workers, "worker")),
        line(f"p50 {p50} p99 {p99}"),
    ]


def _store(live: Live, page: Page) -> list[Line]:
    words = _STATES.get(live.store_state, live.store_state)
    state = Span(_clean(words, page), "good" if live.store_state == "ok" else "bad")
    parts = [
        line(f"store {_clean(live.store_url, page)} ", state),
        line(
            f"{amount(live.allowed)} allowed, ",
            Span(f"{amount(live.denied)} denied", "bad" if live.denied else ""),
            f" since {moment(live.began, live.at)} UTC",
        ),
    ]
    if live.factor < 1:
        parts.append(line(Span(f"limits lowered to {live.factor:.0%}", "warn")))
    return parts


def _told(trouble: str, style: Style, page: Page) -> list[Line]:
    """*trouble*, in a few lines at most."""
    if not trouble:
        return []
    told = line(Span(f"! {_clean(trouble, page)}", style))
    return wrapped(told, page.width, indent="  ")[:_MOST_LINES]


def _clean(text: str, page: Page) -> str:
    return harmless(" ".join(text.split()), is_ascii=page.is_ascii)
