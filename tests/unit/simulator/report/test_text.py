"""The report for a terminal."""

import re
import subprocess
import sys

import pytest

from headgate.errors import OptionError
from headgate.simulator.report import text_report
from headgate.simulator.results import RuleResult
from tests.support.replay_outcomes import HOSTILE, outcome, rule


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _row(text: str, name: str) -> list[str]:
    """The cells of the first line that begins with *name*, as words."""
    return next(line for line in text.splitlines() if line.startswith(name)).split()


def test_the_conclusion_stands_on_top() -> None:
    text = text_report([outcome(rule(), rule("other", denied=(0, 1, 0)))])
    assert _first_line(text) == (
        "Of 46 requests of 4 callers, 6 (13 %) of 2 callers would have been denied; "
        "most by `per-tenant`."
    )


def test_a_single_rule_that_denies_is_blamed_for_all() -> None:
    text = text_report([outcome(rule(), rule("quiet", denied=(0, 0, 0), top=()))])
    assert _first_line(text).endswith("; all by `per-tenant`.")


def test_a_rule_in_shadow_is_not_blamed_but_reported() -> None:
    watching = rule("watching", mode="shadow", denied=(9, 9, 9))
    text = text_report([outcome(rule(), watching)])
    assert _first_line(text).endswith("all by `per-tenant`.")
    assert "would be denied most by watching (shadow)" in text
    assert text.index("\nper-tenant ") < text.index("\nwatching (shadow)")


def test_nobody_denied_is_said_in_words() -> None:
    calm = outcome(rule(denied=(0, 0, 0), top=()), denied=(0, 0, 0), callers_denied=0)
    assert _first_line(text_report([calm])) == (
        "Of 40 requests of 4 callers, none would have been denied."
    )


def test_no_traffic_is_no_error() -> None:
    nothing = outcome(allowed=(), denied=(), callers=0, callers_denied=0)
    assert _first_line(text_report([nothing])) == "There were no requests."
    assert _first_line(text_report([nothing, nothing])) == "There were no requests."


def test_every_rule_has_its_figures() -> None:
    text = text_report([outcome(rule())])
    cells = ["per-tenant", "6", "13", "%", "46", "2", "4"]
    assert _row(text, "per-tenant")[: len(cells)] == cells
    assert "2025-11-16 00:01:01 UTC" in text
    assert "acme" in text
    assert "25 %" in text


def test_two_policies_stand_side_by_side_with_the_difference() -> None:
    before = outcome(rule())
    after = outcome(
        rule(denied=(0, 9, 1), top=(("globex", 9, 8), ("initech", 9, 2))),
        name="new.yaml",
        denied=(0, 9, 1),
    )
    text = text_report([before, after])
    assert _first_line(text) == (
        "With `new.yaml` instead of `old.yaml`, 4 more of 50 requests would have been denied: "
        "10 (20 %) of 2 callers, not 6 (13 %) of 2 callers."
    )
    assert _row(text, "per-tenant")[1:6] == ["6", "10", "+4", "1", "1"]
    newly, relieved = (
        text.index("newly limited by per-tenant"),
        text.index("relieved by per-tenant"),
    )
    assert "initech" in text[newly:relieved]
    assert "globex" not in text[newly:]
    assert "acme" in text[relieved:]


ACME = ("acme", 9, 3)
GLOBEX = ("globex", 9, 3)
MANY = rule(top=(ACME,), keys_denied=30)


@pytest.mark.parametrize(
    ("before", "after", "newly", "relieved"),
    [
        (rule(top=(ACME,)), rule(top=(ACME, GLOBEX)), "1", "0"),
        (rule(top=(ACME,)), rule(top=(GLOBEX,)), "1", "1"),
        (MANY, rule(top=(GLOBEX,)), "not known", "at least 29"),
        (rule(top=(GLOBEX,)), MANY, "at least 29", "not known"),
        (MANY, rule(top=(), denied=(0, 0, 0)), "0", "30"),
    ],
)
def test_the_number_of_newly_limited_and_relieved_keys_is_exact_or_says_so(
    before: RuleResult, after: RuleResult, newly: str, relieved: str
) -> None:
    text = text_report([outcome(before), outcome(after)])
    line = next(line for line in text.splitlines() if line.startswith("per-tenant"))
    assert re.split("  +", line)[4:6] == [newly, relieved]


def test_the_largest_change_comes_first() -> None:
    before = outcome(rule("a", denied=(1, 0, 0)), rule("b", denied=(9, 0, 0)))
    after = outcome(rule("a", denied=(2, 0, 0)), rule("b", denied=(0, 0, 0)))
    text = text_report([before, after])
    assert _row(text, "b ")[3] == "\N{MINUS SIGN}9"
    assert text.index("\nb ") < text.index("\na ")


def test_a_rule_of_one_policy_only_is_reported_as_new_or_removed() -> None:
    text = text_report([outcome(rule("old")), outcome(rule("new"))])
    assert "removed: 100/s" in text
    assert "new: 100/s" in text


def test_as_many_denied_is_said_so() -> None:
    text = text_report([outcome(rule()), outcome(rule(), name="new.yaml")])
    assert "as many, 6 (13 %) of 2 callers, would have been denied" in _first_line(text)


def test_what_was_skipped_and_repeated_is_reported() -> None:
    text = text_report([outcome(rule(), retries=1_200, skipped=3)])
    assert "1,200 of the requests repeat denied ones" in text
    assert "3 lines of the trace are invalid" in text


def test_hostile_names_cannot_speak_to_the_terminal() -> None:
    bad = outcome(rule(HOSTILE, limit=HOSTILE, top=((HOSTILE, 9, 6),)), name=HOSTILE)
    text = text_report([bad]) + text_report([bad, outcome()])
    assert all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("number", [0, 3])
def test_a_report_is_of_one_or_two(number: int) -> None:
    with pytest.raises(OptionError, match=f"not of {number}"):
        text_report([outcome()] * number)


def test_importing_the_report_does_not_import_matplotlib() -> None:
    code = (
        "import sys, headgate.simulator.report as report; "
        "sys.exit('matplotlib' in sys.modules or not report.text_report)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)  # noqa: S603 (our own code)
    assert done.returncode == 0
