"""Keys change what is looked at."""

from __future__ import annotations

import pytest

from headgate.cli.top.live import read_live
from headgate.cli.top.view import ORDERS, View, keys_in
from tests.support.live_answers import answer, rule

LIVE = read_live(
    answer(
        rule("quiet"),
        rule("busy", allowed=90, denied=1),
        rule("strict", allowed=1, denied=9),
        rule("shy", mode="shadow", per_second={"shadow_allowed": 1, "shadow_denied": 5}),
    )
)


def pressed(view: View, *keys: str) -> View:
    for key in keys:
        view = view.after(key, LIVE)
    return view


def order(view: View) -> list[str]:
    return [one.rule_id for one in view.sorted(LIVE)]


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"q", ["quit"]),
        (b"jjk", ["down", "down", "up"]),
        (b"\x1b[A\x1b[B\x1bOA", ["up", "down", "up"]),
        (b"\x1b[5~\x1b[6~", ["page up", "page down"]),
        (b"\x1b", ["back"]),
        (b"\r", ["open"]),
        (b"x\x1b[200~\xff", []),
    ],
)
def test_what_a_terminal_sends_is_understood(sent: bytes, keys: list[str]) -> None:
    assert keys_in(sent) == keys


def test_rules_are_sorted_as_is_wished() -> None:
    assert {one: order(View(order=one)) for one in ORDERS} == {
        "traffic": ["busy", "strict", "shy", "quiet"],
        "denied": ["strict", "busy", "shy", "quiet"],
        "would deny": ["shy", "busy", "strict", "quiet"],
        "share": ["strict", "shy", "busy", "quiet"],
        "name": ["busy", "quiet", "shy", "strict"],
        "policy": ["quiet", "busy", "strict", "shy"],
    }


def test_s_goes_through_the_orders_and_round() -> None:
    assert pressed(View(), "sort").order == "denied"
    assert pressed(View(), *["sort"] * len(ORDERS)) == View()


def test_the_selection_moves_and_stays_within_the_rules() -> None:
    assert pressed(View(), "down").picked == "busy"
    assert pressed(View(), "down", "down").picked == "strict"
    assert pressed(View(), "down", "up").picked == "busy"
    assert pressed(View(), "last").picked == "quiet"
    assert pressed(View(), "last", "down").picked == "quiet"
    assert pressed(View(), "last", "page up").picked == "busy"


def test_the_selection_stays_with_its_rule_when_the_order_changes() -> None:
    view = pressed(View(), "down", "sort")
    assert (view.picked, view.place(view.sorted(LIVE))) == ("busy", 1)


def test_a_rule_is_opened_and_left() -> None:
    view = pressed(View(), "down", "open")
    assert view.alone == "busy"
    assert pressed(view, "down").picked == "busy"
    assert pressed(view, "back").alone is None


def test_pause_and_help_are_switched() -> None:
    assert pressed(View(), "pause").is_paused
    assert pressed(View(), "pause", "pause") == View()
    assert pressed(View(), "help").is_help
    assert not pressed(View(), "help", "back").is_help
    assert pressed(View(), "quit").is_over


def test_before_the_first_answer_there_is_nothing_to_select() -> None:
    assert View().after("down", None) == View()
