"""The picture: what is told, and that it keeps to the page, whatever is answered."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.cli.top.live import Live, Page, Scene, read_live
from headgate.cli.top.picture import picture
from headgate.cli.top.text import plain, width_of
from headgate.cli.top.view import ORDERS, View
from tests.examples import example_count
from tests.support.live_answers import answer, candidate, key, rule

URL = "http://127.0.0.1:8090"
WIDE = Page(120)

PICTURE = """
headgate 0.1.0 ok  revision 7, 3 rules  2 workers  p50 12µs p99 1.4ms
store redis://host:6379/0 ok  12.3k allowed, 67 denied since 18:06 UTC

  RULE by traffic                ALLOW/S  DENY/S SHADOW/S DENIED BY             LAST MINUTE
> per-tenant                          90      10        0    10% store          ████████████████████
  per-tenant-candidate (candida…      60       0       40    40% store          ████████████████████
  old (gone)                           0       0        0      - store

per-tenant: 9,000 allowed, 1,000 denied since 18:06 UTC; decided by store 100%

CANDIDATES
  per-tenant-candidate would have denied 312 requests of 14 callers since 2025-11-15 19:06 UTC; 300
    of them per-tenant let pass, and 5 that it denied would pass; 200 of them rules in force denied
    anyway

QUEUES
  checkout: 3 waiting, 10 of 10 in flight

BUSIEST KEYS                                       REFUSED KEYS
      81/s per-tenant  tenant=~0d3b5a91c2e4             9.7/s per-tenant  tenant=~77c1d0e2ab90
"""


def shown(live: Live | None, view: View = View(), page: Page = WIDE, **more: Any) -> list[str]:  # noqa: B008 - it is frozen
    return [plain(one) for one in picture(Scene(live, URL, **more), view, page, has_keys=False)]


def styles(live: Live, text: str, **more: Any) -> set[str]:
    """The styles in which *text* stands."""
    lines = picture(Scene(live, URL, **more), View(), WIDE)
    return {span.style for one in lines for span in one if text in span.text}


def test_one_picture() -> None:
    live = read_live(
        answer(
            rule("per-tenant", allowed=90, denied=10),
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
    lines = shown(live, View(picked="per-tenant"), Page(100))
    assert "\n".join(lines) == PICTURE.strip("\n")


def test_before_the_first_answer_it_says_that_it_asks() -> None:
    assert shown(None) == [f"headgate top  {URL}", "asking..."]
    assert shown(None, trouble="gone; trying again")[1] == "! gone; trying again"


def test_a_service_that_is_gone_is_told_above_its_last_figures() -> None:
    live = read_live(answer(rule("a", allowed=1)))
    lines = shown(live, trouble=f"{URL} does not say how it stands: Connection refused")
    assert lines[0].startswith("headgate 0.1.0 TROUBLE")
    assert "Connection refused" in lines[2]
    assert any(" a " in line for line in lines)
    assert styles(live, "ALLOW/S", trouble="gone") == {"dim"}


def test_troubles_of_store_and_rules_are_told() -> None:
    store = {"url": "redis://h", "state": "open", "trouble": ["it cannot be asked"]}
    live = read_live(answer(store=store, factor=0.5, policy={"revision": 7, "stale": True}))
    text = "\n".join(shown(live))
    assert "store redis://h is failing, and left alone for a moment" in text
    assert "! it cannot be asked" in text
    assert "! the rules in force are stale" in text
    assert "limits lowered to 50%" in text


def test_who_decided_in_the_place_of_the_store_is_marked() -> None:
    live = read_live(answer(rule("a", allowed=9, sources={"store": 75, "fail_open": 25})))
    assert [line for line in shown(live) if "fail_open 25%" in line and line.startswith(" !a")]
    assert styles(live, "fail_open") == {"warn"}


def test_what_the_store_lends_is_told_and_is_nothing_amiss() -> None:
    both = {"lease": 90.0, "fail_open": 10.0}
    lent = rule(
        "lent", allowed=9, sources={"store": 1, "lease": 99}, sources_per_second={"lease": 9}
    )
    odd = rule("odd", allowed=9, sources={}, sources_per_second=both)
    live = read_live(answer(lent, odd))
    rows = [line for line in shown(live) if line[2:6] in ("lent", "odd ")]
    assert [line[:6] for line in rows] == ["  lent", " !odd "]
    assert "lease 100%" in rows[0]
    assert "fail_open 10%" in rows[1]
    assert styles(live, "lease") == {"dim"}


def test_only_what_was_decided_lately_counts_for_that() -> None:
    before = read_live(answer(rule("a", allowed=9, sources={"store": 75, "fail_open": 25})))
    after = read_live(answer(rule("a", allowed=9, sources={"store": 95, "fail_open": 25})))
    assert "fail_open" not in "\n".join(shown(after, earlier=before))
    assert "fail_open" in "\n".join(shown(before, earlier=after)), "it has begun anew"


def test_one_picture_alone_tells_who_decided_lately_and_not_since_the_service_began() -> None:
    ever = {"store": 75, "fail_open": 25}
    now = {"store": 1.0, "fail_open": 3.0}
    over = rule("over", allowed=9, sources=ever, sources_per_second={"store": 9.0})
    quiet = rule("quiet", sources=ever, sources_per_second={})
    bad = rule("bad", allowed=4, sources=ever, sources_per_second=now)
    lines = shown(read_live(answer(over, quiet, bad)))
    assert [line[:6] for line in lines if "fail_open" in line] == [" !bad "]
    assert [line for line in lines if "fail_open 75%" in line]


def test_bars_are_red_where_it_denied_and_yellow_where_it_would_have() -> None:
    rates = {"shadow_allowed": 1, "shadow_denied": 1}
    live = read_live(answer(rule("a", allowed=1, denied=1), rule("b", allowed=1)))
    shy = read_live(answer(rule("c", mode="shadow", per_second=rates)))
    assert styles(live, "█") == {"bad", "good"}
    assert styles(shy, "█") == {"warn"}


def test_a_candidate_that_would_have_denied_nobody_says_so() -> None:
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


def test_a_rule_alone_has_a_chart_and_its_own_keys() -> None:
    live = read_live(
        answer(
            rule("a", allowed=9),
            rule("b"),
            busiest_keys=[key("a", "mine", 1), key("b", "other", 1)],
        )
    )
    text = "\n".join(shown(live, View(alone="a")))
    assert "9.0/s │████" in text
    assert "the last 120 seconds" in text
    assert "mine" in text
    assert "other" not in text
    assert "there is no rule 'x'" in "\n".join(shown(live, View(alone="x")))


def test_where_there_is_only_ascii_there_is_nothing_else() -> None:
    live = read_live(answer(rule("a-日本", allowed=9), busiest_keys=[key("a", "é", 1)]))
    for view in (View(), View(alone="a-日本"), View(is_help=True)):
        lines = picture(Scene(live, URL), view, Page(60, 20, is_ascii=True))
        assert all(plain(line).isascii() for line in lines)


def test_help_tells_the_keys() -> None:
    text = "\n".join(shown(None, View(is_help=True)))
    assert "q, Ctrl-C" in text
    assert "sort by traffic" in text


def test_on_a_short_page_the_selected_rule_is_seen() -> None:
    live = read_live(answer(*(rule(f"rule-{n:03}", allowed=n) for n in range(200))))
    for place in (0, 57, 199):
        lines = picture(Scene(live, URL), View(picked=f"rule-{place:03}"), Page(60, 12))
        assert len(lines) == 12
        assert [plain(line)[:10] for line in lines if plain(line).startswith(">")] == [
            f"> rule-{place:03}"
        ]
        assert plain(lines[-1]).startswith("q quit")


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_row_of_the_table_has_to_be_cut(width: int) -> None:
    live = read_live(answer(*(rule("r" * n, allowed=10**n, denied=3) for n in (1, 8, 12, 30))))
    rows = [line for line in shown(live, page=Page(width)) if line.startswith("  r")]
    assert len(rows) == 4
    assert all(row.endswith("█") for row in rows)


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
    order=st.sampled_from(ORDERS),
    picked=st.none() | NAMES,
    alone=st.none() | NAMES,
    is_paused=st.booleans(),
    is_help=st.booleans(),
)
PAGES = st.builds(Page, st.integers(1, 150), st.none() | st.integers(1, 50), st.booleans())


@settings(max_examples=example_count(40), deadline=None)
@given(ANSWERS, VIEWS, PAGES, NAMES)
def test_it_keeps_to_the_page_and_has_nothing_that_a_terminal_obeys(
    data: dict[str, Any], view: View, page: Page, trouble: str
) -> None:
    live = read_live(data)
    lines = picture(Scene(live, URL, live, trouble), view, page)
    assert page.height is None or len(lines) == page.height
    for line in lines:
        assert width_of(line) <= page.width
        assert all(span.text.isprintable() for span in line)
        assert not page.is_ascii or plain(line).isascii()


def test_the_keys_of_a_rule_in_shadow_are_told_as_such() -> None:
    data = answer(rule("tried", mode="shadow", shadow_denied=4))
    data["refused_keys"] = [key("tried", "ip=~77c1d0e2ab90", 4.0)]
    text = "\n".join(shown(read_live(data)))
    assert "4.0/s tried (shadow)  ip=~77c1d0e2ab90" in text


def test_a_rule_that_nothing_was_asked_of_has_no_chart() -> None:
    data = answer(rule("idle"), rule("untold", allowed=1))
    data["series"] = {}
    live = read_live(data)
    assert "nothing was asked of it lately" in shown(live, View(alone="idle"))
    assert "its seconds are not told" in shown(live, View(alone="untold"))
