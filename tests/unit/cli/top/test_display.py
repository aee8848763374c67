"""The picture of `headgate top`, and the view that the keys change."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from headgate.cli.top.display import (
    ORDERS,
    Picture,
    View,
    amount,
    keys_in,
    rate,
)
from headgate.cli.top.figures import Live, read_live
from tests.examples import example_count
from tests.support.live_answers import answer, candidate, key, rule

URL = "http://127.0.0.1:8090"

PICTURE = """
headgate 0.1.0 healthy  revision 7, 3 rules  2 workers  p50 12us p99 1.4ms
store redis://host:6379/0 ok  12.3k allowed, 67 denied since 18:06 UTC

  RULE by traffic                  ALLOW/S DENY/S SHADOW/S DENIED BY
> per-tenant                            90     10        0    10% store
  per-tenant-candidate (candidate)      60      0       40    40% store
  old (removed)                          0      0        0      - store

per-tenant: 9,000 allowed, 1,000 denied since 18:06 UTC; decided by store 100%

CANDIDATES
  per-tenant-candidate would have denied 312 requests of 14 callers since 2025-11-15 19:06 UTC;
  per-tenant allowed 300 of them and denied 5 that would be allowed; enforced rules denied 200 of
  them anyway

QUEUES
  checkout: 3 waiting, 10 of 10 in flight

BUSIEST KEYS                                      DENIED KEYS
     81/s  per-tenant  tenant=~0d3b5a91c2e4           9.7/s  per-tenant  tenant=~77c1d0e2ab90
"""


def drawn(picture: Picture, width: int, height: int | None, *, colour: bool = False) -> list[str]:
    """The lines of *picture* on a console of this size."""
    console = Console(
        file=StringIO(),
        width=width,
        color_system="standard" if colour else None,
        force_terminal=colour,
        highlight=False,
    )
    with console.capture() as capture:
        console.print(picture, height=height)
    return [line.rstrip() for line in capture.get().removesuffix("\n").split("\n")]


def shown(live: Live | None, view: View = View(), width: int = 120, trouble: str = "") -> list[str]:  # noqa: B008 - it is frozen
    picture = Picture(URL, live, view, trouble, is_screen=False)
    return drawn(picture, width, None)


def coloured(live: Live) -> str:
    return "\n".join(drawn(Picture(URL, live, View()), 120, None, colour=True))


def test_one_picture() -> None:
    live = read_live(
        answer(
            rule("per-tenant", allowed=90, denied=10, sources_per_second={"store": 100}),
            rule(
                "per-tenant-candidate",
                mode="shadow",
                candidate_of="per-tenant",
                per_second={"shadow_allowed": 60, "shadow_denied": 40},
            ),
            rule("old", mode=None),
            busiest_keys=[key("per-tenant", "tenant=~0d3b5a91c2e4", 81.2)],
            refused_keys=[key("per-tenant", "tenant=~77c1d0e2ab90", 9.7)],
            queues=[{"gate": "checkout", "waiting": 3, "in_flight": 10, "slots": 10}],
            candidates=[
                candidate(
                    "per-tenant-candidate",
                    candidate_of="per-tenant",
                    newly_denied=300,
                    newly_allowed=5,
                    denied_anyway=200,
                )
            ],
        )
    )
    lines = shown(live, View(selected="per-tenant"), 100)
    assert "\n".join(lines) == PICTURE.strip("\n")


def test_before_the_first_response_it_is_connecting() -> None:
    assert shown(None) == [f"headgate top  {URL}", "Connecting..."]
    assert shown(None, trouble="No figures. Retrying.")[1] == "! No figures. Retrying."


def test_an_unreachable_service_is_reported_above_its_last_figures() -> None:
    live = read_live(answer(rule("a", allowed=1)))
    lines = shown(live, trouble="Connection refused")
    assert lines[0].startswith("headgate 0.1.0 UNHEALTHY")
    assert lines[2] == "! Connection refused"
    assert any(line.startswith("  a ") for line in lines)


def test_troubles_of_store_and_policy_are_reported() -> None:
    store = {"url": "redis://h", "state": "open", "trouble": ["no reply"]}
    live = read_live(answer(store=store, factor=0.5, policy={"revision": 7, "stale": True}))
    text = "\n".join(shown(live))
    assert "store redis://h circuit open" in text
    assert "! no reply" in text
    assert "! The active policy is stale." in text
    assert "limits lowered to 50%" in text


def test_recent_decisions_without_the_store_are_marked() -> None:
    ever = {"store": 75, "fail_open": 25}
    leases = rule("leased", allowed=9, sources_per_second={"lease": 9})
    over = rule("over", allowed=9, sources=ever, sources_per_second={"store": 9.0})
    bad = rule("bad", allowed=4, sources_per_second={"lease": 1.0, "fail_open": 3.0})
    lines = shown(read_live(answer(leases, over, bad)))
    assert [line[:9].rstrip() for line in lines if "fail_open 75%" in line] == [" !bad"]
    assert [line[:9].rstrip() for line in lines if "lease 100%" in line] == ["  leased"]
    assert "\x1b[33mfail_open 75%" in coloured(read_live(answer(bad)))


def test_a_candidate_without_denials_says_so() -> None:
    live = read_live(
        answer(
            candidates=[
                candidate("calm", would_deny=0, keys=0),
                candidate("idle", requests=0, would_deny=0, since=None),
                candidate("vague", keys=20_000, keys_exact=False),
            ]
        )
    )
    text = "\n".join(shown(live))
    assert "calm would have denied none of 9,000 requests since" in text
    assert "idle has seen no request\n" in text
    assert "312 requests of about 20,000 callers" in text


def test_a_single_rule_has_its_own_keys() -> None:
    live = read_live(
        answer(
            rule("a", allowed=9),
            rule("b"),
            busiest_keys=[key("a", "mine", 1), key("b", "other", 1)],
        )
    )
    text = "\n".join(shown(live, View(only="a")))
    assert "a: 900 allowed, 0 denied" in text
    assert "mine" in text
    assert "other" not in text
    assert "There is no rule 'x'." in shown(live, View(only="x"))


def test_keys_of_a_shadow_rule_are_marked() -> None:
    data = answer(rule("tried", mode="shadow", shadow_denied=4))
    data["refused_keys"] = [key("tried", "ip=~77c1d0e2ab90", 4.0)]
    assert "    4.0/s  tried (shadow)  ip=~77c1d0e2ab90" in shown(read_live(data))


def test_help_lists_the_keys() -> None:
    text = "\n".join(shown(None, View(is_help=True)))
    assert "q, Ctrl-C" in text
    assert "sort by traffic" in text


def test_a_short_screen_shows_the_selected_rule_and_the_footer() -> None:
    live = read_live(answer(*(rule(f"rule-{n:03}", allowed=n) for n in range(200))))
    for place in (0, 57, 199):
        view = View(selected=f"rule-{place:03}")
        lines = drawn(Picture(URL, live, view), 60, 12)
        assert len(lines) == 12
        assert [line[:10] for line in lines if line.startswith(">")] == [f"> rule-{place:03}"]
        assert lines[-1].startswith("q quit")


NAMES = st.text(max_size=30) | st.sampled_from(["日本語" * 9, "\x1b[31m", "a" * 70, "\u202ex"])
NUMBERS = st.floats(allow_nan=True) | st.integers(0, 10**20) | st.none()
RULES = st.builds(
    lambda name, mode, rates, sources: rule(name, mode=mode, per_second=rates, sources=sources),
    NAMES,
    st.sampled_from(["enforce", "shadow", "off", None, "\x07new"]),
    st.fixed_dictionaries({"allowed": st.floats(0, 1e9), "denied": st.floats(0, 1e9)}),
    st.dictionaries(NAMES, NUMBERS, max_size=3),
)
ANSWERS = st.builds(
    lambda rules, **more: answer(*rules, **more),
    st.lists(RULES, max_size=12),
    busiest_keys=st.lists(st.builds(key, NAMES, NAMES, NUMBERS), max_size=12),
    refused_keys=st.lists(st.builds(key, NAMES, NAMES, NUMBERS), max_size=3),
    candidates=st.lists(st.builds(candidate, NAMES, keys=NUMBERS, since=NUMBERS), max_size=3),
    version=NAMES,
    at=NUMBERS,
    store=st.fixed_dictionaries({"url": NAMES, "state": NAMES, "trouble": st.lists(NAMES)}),
)
VIEWS = st.builds(
    View,
    order=st.sampled_from(list(ORDERS)),
    selected=st.none() | NAMES,
    only=st.none() | NAMES,
    is_paused=st.booleans(),
    is_help=st.booleans(),
)


@settings(max_examples=example_count(40), deadline=None)
@given(ANSWERS, VIEWS, st.integers(1, 150), st.integers(1, 50), NAMES)
def test_the_picture_fits_and_contains_no_control_characters(
    data: dict[str, Any], view: View, width: int, height: int, trouble: str
) -> None:
    lines = drawn(Picture(URL, read_live(data), view, trouble), width, height)
    assert len(lines) == height
    for line in lines:
        assert cell_len(line) <= width
        assert line.isprintable()


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (0.01, "<0.1"), (0.2, "0.2"), (9.96, "10"), (1500, "1.5k"), (123_456, "123k")],
)
def test_a_rate_is_short(number: float, text: str) -> None:
    assert rate(number) == text


@given(st.floats(0, 1e12))
def test_figures_have_at_most_six_characters(number: float) -> None:
    assert len(rate(number)) <= 6
    assert len(amount(number)) <= 6


LIVE = read_live(
    answer(
        rule("quiet"),
        rule("busy", allowed=90, denied=1),
        rule("strict", allowed=1, denied=9),
        rule("shy", mode="shadow", per_second={"shadow_allowed": 1, "shadow_denied": 5}),
    )
)


def pressed(view: View, *keys: str) -> View:
    for one in keys:
        view = view.after(one, LIVE)
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
def test_the_bytes_of_keys_are_known(sent: bytes, keys: list[str]) -> None:
    assert keys_in(sent) == keys


def test_rules_are_sorted_by_each_order() -> None:
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
    assert pressed(View(), "down").selected == "busy"
    assert pressed(View(), "down", "down").selected == "strict"
    assert pressed(View(), "down", "up").selected == "busy"
    assert pressed(View(), "last").selected == "quiet"
    assert pressed(View(), "last", "down").selected == "quiet"
    assert pressed(View(), "last", "page up").selected == "busy"


def test_the_selection_stays_with_its_rule_when_the_order_changes() -> None:
    view = pressed(View(), "down", "sort")
    assert (view.selected, view.index(view.sorted(LIVE))) == ("busy", 1)


def test_a_rule_is_opened_and_left() -> None:
    view = pressed(View(), "down", "open")
    assert view.only == "busy"
    assert pressed(view, "down").selected == "busy"
    assert pressed(view, "back").only is None


def test_pause_and_help_are_switched() -> None:
    assert pressed(View(), "pause").is_paused
    assert pressed(View(), "pause", "pause") == View()
    assert pressed(View(), "help").is_help
    assert not pressed(View(), "help", "back").is_help


def test_before_the_first_answer_there_is_nothing_to_select() -> None:
    assert View().after("down", None) == View()
