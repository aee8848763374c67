"""What the second policy changes, and how sure one can be."""

from headgate.simulator.report.summary import differences
from headgate.simulator.results import RuleResult
from tests.support.replay_outcomes import outcome, rule

ACME = ("acme", 9, 3)
GLOBEX = ("globex", 9, 3)


def _shifts(before: RuleResult, after: RuleResult) -> tuple[str, str]:
    (one,) = differences(outcome(before), outcome(after))
    return str(one.newly), str(one.relieved)


def test_all_keys_told_of_are_exact() -> None:
    assert _shifts(rule(top=(ACME,)), rule(top=(ACME, GLOBEX))) == ("1", "0")
    assert _shifts(rule(top=(ACME,)), rule(top=(GLOBEX,))) == ("1", "1")


def test_keys_that_are_not_told_of_may_have_been_limited_too() -> None:
    many = rule(top=(ACME,), keys_denied=30)
    assert _shifts(many, rule(top=(GLOBEX,))) == ("not known", "at least 29")
    assert _shifts(rule(top=(GLOBEX,)), many) == ("at least 29", "not known")
    assert _shifts(many, rule(top=(), denied=(0, 0, 0))) == ("0", "30")


def test_the_largest_change_comes_first() -> None:
    before = outcome(rule("a", denied=(1, 0, 0)), rule("b", denied=(9, 0, 0)))
    after = outcome(rule("a", denied=(2, 0, 0)), rule("b", denied=(0, 0, 0)))
    assert [one.rule_id for one in differences(before, after)] == ["b", "a"]
    assert [one.change for one in differences(before, after)] == [-9, 1]
