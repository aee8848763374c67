"""The fields of a rule, and what YAML 1.1 would have made of their values."""

from fractions import Fraction
from typing import Any

import pytest

from headgate.decision import OnFailure
from headgate.limits import Accuracy
from headgate.policy.loader import examine_policy, examine_policy_data
from headgate.policy.model import Idempotency, Rule
from headgate.policy.problems import Problem
from headgate.units import DAY, HOUR, MILLISECOND, MINUTE, SECOND


def read(fields: str) -> tuple[Rule | None, tuple[Problem, ...]]:
    """A rule with *fields*, in YAML, added to what every rule needs."""
    defaults = {"id": "id: a", "key_by": "key_by: ip", "limit": "limit: 100/s"}
    lines = [line for name, line in defaults.items() if f"{name}:" not in fields]
    text = "\n    ".join([*lines, *fields.splitlines()])
    examined = examine_policy(f"version: 1\nrules:\n  -\n    {text}\n")
    return (examined.policy.rules[0] if examined.policy else None), examined.problems


def good(fields: str) -> Rule:
    rule, problems = read(fields)
    assert rule is not None, problems
    return rule


def bad(fields: str) -> Problem:
    rule, problems = read(fields)
    assert rule is None
    (problem,) = [problem for problem in problems if problem.severity == "error"]
    return problem


@pytest.mark.parametrize("mode", ["enforce", "shadow", "off"])
def test_every_mode_is_read(mode: str) -> None:
    assert good(f"mode: {mode}").mode == mode
    assert good(f'mode: "{mode}"').mode == mode


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("on", "on"),
        ("off", "off"),
        ("redacted", "redacted"),
        ("brief", "brief"),
        ("true", "on"),
        ("false", "off"),
        ("'off'", "off"),
    ],
)
def test_headers_are_a_word_or_a_switch(written: str, meant: str) -> None:
    assert good(f"headers: {written}").headers == meant


def test_what_other_parsers_make_of_off_is_off() -> None:
    data = {"version": 1, "rules": [{"id": "a", "key_by": "ip", "limit": "1/s", "mode": False}]}
    examined = examine_policy_data(data)
    assert examined.policy is not None
    assert examined.policy.rules[0].mode == "off"


@pytest.mark.parametrize("written", ["fail_open", "fail_closed", "local"])
def test_every_answer_to_a_failing_store_is_read(written: str) -> None:
    assert good(f"on_store_failure: {written}").on_failure.mode == written


@pytest.mark.parametrize(
    ("fields", "field", "message", "hint"),
    [
        ("mode: shadwo", "mode", "found 'shadwo'", "did you mean 'shadow'?"),
        ("mode: true", "mode", "found true, expected one of enforce, shadow, off", ""),
        ("mode:", "mode", "found nothing, expected one of enforce, shadow, off", ""),
        ("mode: [off]", "mode", "found a list, expected one of enforce, shadow, off", ""),
        ("headers: yes", "headers", "found 'yes'", "expected one of on, brief, off, redacted"),
        ("headers: redact", "headers", "found 'redact'", "did you mean 'redacted'?"),
        ("on_store_failure: open", "on_store_failure", "found 'open'", "did you mean 'fail_open'?"),
        ("limt: 5/s", "limt", "unknown field", "did you mean 'limit'?"),
        ("Limits: [5/s]", "Limits", "unknown field", "did you mean 'limits'?"),
        ("description:", "description", "found nothing, expected text", ""),
        ("description: {}", "description", "found a mapping, expected text", ""),
        ('description: "a\\x00"', "description", "the character U+0000 may not be in it", ""),
        ("id: ''", "id", "found an empty text, expected an id such as", ""),
        ("id: a b", "id", "'a b' is not an id", ""),
        ("id: ä", "id", "'ä' is not an id", ""),
        ("id: true", "id", "found true, expected", "put it in quotes to mean the word"),
        ("id: [a]", "id", "found a list, expected", ""),
        ("accuracy: 1%", "accuracy", "found 1%, expected the accuracy: a mapping with", ""),
        (
            "accuracy: {}",
            "accuracy",
            "found nothing in it, expected one of max_o",
            "",
        ),
        ("accuracy: {max_overshoot: 0.01}", "accuracy.max_overshoot", "found 0.01, expected a", ""),
        ("accuracy: {max_overshoot: 0%}", "accuracy.max_overshoot", "found 0%, expected a", ""),
        ("accuracy: {max_overshoot: 101%}", "accuracy.max_overshoot", "found 101%, expected", ""),
        ("accuracy: {batch: 0}", "accuracy.batch", "found 0, expected a whole number from 1", ""),
        ("idempotency: yes", "idempotency", "found 'yes', expected true, false or a mapping", ""),
        ("idempotency: {ttl: 0}", "idempotency.ttl", "found 0 seconds; expected from a", ""),
        ("idempotency: {ttl: 5:30}", "idempotency.ttl", "found 5:30, expected seconds, or", ""),
        ("idempotency: {header: 'a b'}", "idempotency.header", "'a b' is not the name of", ""),
        (
            "idempotency: {retries: 0}",
            "idempotency.retries",
            "found 0, expected a whole number from 1 to 1000",
            "",
        ),
        ("idempotency: {fingerprint: []}", "idempotency.fingerprint", "found a list", ""),
        (
            "idempotency: {fingerprint: [a, b, c, d, e, f, g, h, i]}",
            "idempotency.fingerprint",
            "9 entries; expected at most 8",
            "",
        ),
    ],
)
def test_a_wrong_field_is_told_with_what_was_found_and_expected(
    fields: str, field: str, message: str, hint: str
) -> None:
    if fields.startswith(("limt", "Limits")):
        fields += "\nlimit: 5/s"
    problem = bad(fields)
    assert (problem.field, problem.hint) == (field, hint)
    assert problem.message.startswith(message)
    assert problem.line is not None


@pytest.mark.parametrize("written", ["on", "yes", "010", "1e3", "404", "1.5", "2024-01-01", "n"])
def test_an_id_is_taken_as_it_is_written(written: str) -> None:
    assert good(f"id: {written}").id == written


def test_a_description_may_have_lines() -> None:
    assert good("description: |\n  one\n  two\n").description == "one\ntwo\n"
    assert good("description: 2024-01-01").description == "2024-01-01"


def test_accuracy_tells_how_round_trips_are_saved() -> None:
    found = good("accuracy: {max_overshoot: 5%, batch: 20, sync: 50ms, denials: 2s, split: 8}")
    assert found.accuracy == Accuracy(
        Fraction(1, 20), 20, 50 * MILLISECOND, denials_ns=2 * SECOND, split=8
    )
    assert good("accuracy: {batch: 5, denials: off}").accuracy.remembers_ns == 0


@pytest.mark.parametrize(
    ("accuracy", "message"),
    [
        ("{split: 8}", "one of 8 counters with 12 of 100 units"),
        ("{split: 64, batch: 5}", "one of 64 counters with 1 of 100 units"),
    ],
)
def test_check_states_what_a_split_means(accuracy: str, message: str) -> None:
    rule, problems = read(f"accuracy: {accuracy}")
    (problem,) = problems
    assert rule is not None
    assert problem.severity == "warning"
    assert message in problem.message
    assert "remaining is that of the one counter" in problem.message
    assert "use max_overshoot or batch instead" in str(problem)


def test_check_states_that_a_small_limit_is_not_split() -> None:
    _, problems = read("limit: 7/s\naccuracy: {split: 8}")
    (problem,) = problems
    assert "a limit of 7 is not split" in problem.message


def test_an_overshoot_of_next_to_nothing_is_warned_of() -> None:
    _, problems = read("accuracy: {max_overshoot: 1%}")
    (problem,) = problems
    assert problem.severity == "warning"
    assert "of the limit of 100 that is 1: too little to take in advance" in problem.message


def test_gateways_that_tell_no_region_are_warned_of() -> None:
    _, problems = read("across_regions: true\ndecide: local")
    (problem,) = problems
    assert problem.severity == "warning"
    assert "report nothing of what they allow" in problem.message
    assert not read("across_regions: true\ndecide: quota")[1]


@pytest.mark.parametrize(
    ("written", "share"),
    [
        ("0%", Fraction(0)),
        ("12.5%", Fraction(1, 8)),
        ("100%", Fraction(1)),
        ("1000%", Fraction(10)),
    ],
)
def test_the_debt_between_regions_is_a_share_of_the_limit(written: str, share: Fraction) -> None:
    fields = f"across_regions: true\nmax_region_debt: {written}"
    assert good(fields).max_region_debt == share
    assert good("across_regions: true").max_region_debt == 1


@pytest.mark.parametrize("written", ["0.5", "1001%", "-1%", "50", "none"])
def test_a_debt_that_is_no_share_is_refused(written: str) -> None:
    problem = bad(f"across_regions: true\nmax_region_debt: {written}")
    assert problem.field == "max_region_debt"


def test_a_debt_without_regions_is_warned_of() -> None:
    _, (problem,) = read("max_region_debt: 50%")
    assert (problem.severity, problem.field) == ("warning", "max_region_debt")
    assert "no effect without across_regions: true" in problem.message


def test_an_outage_has_its_terms() -> None:
    found = good("on_store_failure: {share: 25%, max_fail_open: 5m, then: local}").on_failure
    assert found == OnFailure("fail_open", Fraction(1, 4), 5 * MINUTE, "local")
    assert good("on_store_failure: {mode: local, share: 50%}").on_failure.share == Fraction(1, 2)


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ("accuracy: {sync: 0.0001}", "accuracy.sync", "expected at least a millisecond"),
        (
            "on_store_failure: {mode: fail_closed, share: 5%}",
            "on_store_failure.share",
            "a rule that fails closed allows nothing",
        ),
        (
            "on_store_failure: {mode: local, max_fail_open: 5s}",
            "on_store_failure.max_fail_open",
            "is for fail_open, and the mode is local",
        ),
        ("on_store_failure: {then: local}", "on_store_failure.then", "needs max_fail_open"),
    ],
)
def test_terms_that_contradict_each_other_are_told(fields: str, field: str, message: str) -> None:
    problem = bad(fields)
    assert problem.field == field
    assert message in problem.message


@pytest.mark.parametrize(
    ("written", "number"),
    [("100", 100), ("1_00", 100), ("+100", 100), ("1e2", 100), ("100.0", 100), ("1.5e2", 150)],
)
def test_a_number_may_be_spelt_in_any_decimal_way(written: str, number: int) -> None:
    assert good(f"accuracy: {{batch: {written}}}").accuracy == Accuracy(batch=number)


@pytest.mark.parametrize(
    "written",
    [
        *("010", "0o10", "0x10", "0b1", "5:30", "1__0", "_1", "1_", "1 0", "ten", "'10'", "true"),
        *("1.5", "1e-5", "-1", "1e400", ".inf", "9" * 200, "[1]", ""),
    ],
)
def test_a_number_that_is_not_whole_and_decimal_is_refused(written: str) -> None:
    problem = bad(f"accuracy: {{batch: {written}}}")
    assert problem.field == "accuracy.batch"


def test_a_number_that_yaml_versions_disagree_on_says_what_to_write() -> None:
    assert bad("accuracy: {batch: 010}").hint == "write 10"
    assert bad("accuracy: {batch: '10'}").hint == "write it without quotes"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("true", Idempotency(DAY)),
        ("false", None),
        ("{}", Idempotency(DAY)),
        ("{ttl: 90}", Idempotency(90 * SECOND)),
        ("{ttl: 0.5}", Idempotency(SECOND // 2)),
        ("{ttl: 1 hour}", Idempotency(HOUR)),
        ("{ttl: '10m'}", Idempotency(10 * MINUTE)),
        ("{ttl: minute, header: X-Retry}", Idempotency(MINUTE, "x-retry")),
        ("{retries: 3}", Idempotency(DAY, retries=3)),
        ("{fingerprint: Content-Digest}", Idempotency(DAY, fingerprint=("content-digest",))),
        ("{fingerprint: [A, b]}", Idempotency(DAY, fingerprint=("a", "b"))),
    ],
)
def test_idempotency_is_a_switch_or_its_settings(written: str, meant: Idempotency | None) -> None:
    assert good(f"idempotency: {written}").idempotency == meant


@pytest.mark.parametrize("missing", ["id", "key_by"])
def test_a_rule_needs_an_id_and_whom_to_count(missing: str) -> None:
    fields: dict[str, Any] = {"id": "a", "key_by": "ip", "limit": "1/s"}
    del fields[missing]
    (problem,) = examine_policy_data({"version": 1, "rules": [fields]}).problems
    assert problem.field == f"rules[0].{missing}"
    assert problem.message.startswith("missing; expected")


def test_a_rule_that_is_switched_off_is_warned_of() -> None:
    _, (problem,) = read("mode: off")
    assert (problem.severity, problem.message) == ("warning", "the rule is switched off")


def test_a_limit_as_text_may_have_its_algorithm_beside_it() -> None:
    strict = good("limit: 10/minute\nalgorithm: sliding_window_log")
    assert strict.limits == good("limit: 10/minute sliding_window_log").limits
    stacked = good("limit: 10/minute; 99/h\nalgorithm: gcra")
    assert stacked.limits == good("limit: 10/minute gcra; 99/h gcra").limits
    listed = good("limits: [{limit: 10/minute, algorithm: fixed_window}]")
    assert listed.limits == good("limit: 10/minute fixed_window").limits


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ("limit: 5/s gcra\nalgorithm: gcra", "limit", "not a limit, at character 10"),
        ("limit: 5/s\nalgorithm: concurrency\nttl: 5s", "limit", "found 5/s, expected a whole"),
        ("limit: 5/s\nalgorithm: gcra\nburst: 5\nrate_per_sec: 1", "limit", "gcra has no limit"),
        ("limit: 5/s\nalgorithm: fixed_window\nwindow: 5", "limit", "found 5/s, expected a whole"),
    ],
)
def test_a_text_and_the_numbers_of_an_algorithm_exclude_each_other(
    fields: str, field: str, message: str
) -> None:
    problem = bad(fields)
    assert (problem.field, problem.message[: len(message)]) == (field, message)


def test_the_usual_wrong_words_have_their_hint() -> None:
    assert bad("match: {path: /a}").hint == "did you mean 'endpoint'?"
    for field, meant in (("endpoint", "match"), ("method", "match"), ("shadow", "mode")):
        assert bad(f"{field}: x").hint == f"did you mean '{meant}'?"
    names = "max_overshoot, batch, sync, denials, split"
    assert bad("accuracy: {lease: 50}").hint == f"expected one of {names}"
