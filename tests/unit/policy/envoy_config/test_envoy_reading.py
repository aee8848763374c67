"""Files of envoyproxy/ratelimit: what is read, and what is said of those that are wrong."""

import pytest

from headgate.limits import FixedWindow
from headgate.policy.envoy_config.config import UNIT_SECONDS, EnvoyConfig, RateLimit
from headgate.policy.envoy_config.reader import read_envoy_config
from headgate.policy.problems import PolicyError

EVERYTHING = """\
# limits of the shop
domain: shop
descriptors:
  - key: plan
    value: free
    shadow_mode: true
    quota_mode: yes
    detailed_metric: on
    value_to_metric: True
    rate_limit:
      name: free_plan
      replaces:
        - name: guests
      unit: Minute
      requests_per_unit: 1_000
    metadata:
      team: {name: growth, size: 4}
      tags: [a, 1.5, null, false]
    descriptors:
      - key: path
        value: /files/*
        share_threshold: true
        rate_limit: {unit: year, requests_per_unit: 0}
  - key: guest
    rate_limit: {name: guests, unlimited: true}
  - key: port
    value: 80
  - key: flag
    value: yes
    rate_limit:
    descriptors:
"""


def config_of(*texts: str, merge_domains: bool = False) -> EnvoyConfig:
    files = [(f"{chr(ord('a') + number)}.yaml", text) for number, text in enumerate(texts)]
    return read_envoy_config(files, merge_domains=merge_domains)


def errors_of(*texts: str, merge_domains: bool = False) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        config_of(*texts, merge_domains=merge_domains)
    return [str(problem) for problem in caught.value.errors]


def described(fields: str, top: str = "domain: d\n") -> str:
    """A file with one descriptor."""
    lines = fields.strip().splitlines()
    return f"{top}descriptors:\n  - " + "\n    ".join(lines) + "\n"


def limited(fields: str) -> str:
    """A file with one limit."""
    return described(f"key: k\nrate_limit: {{{fields}}}")


def warnings_of(text: str) -> list[str]:
    return [str(warning) for warning in config_of(text).warnings]


def test_every_field_is_read() -> None:
    config = config_of(EVERYTHING)
    plan, guest, port, flag = config.domains["shop"].descriptors
    assert config.warnings == ()
    assert (plan.key, plan.value) == ("plan", "free")
    assert plan.shadow_mode
    assert plan.quota_mode
    assert plan.detailed_metric
    assert plan.value_to_metric
    assert plan.rate_limit == RateLimit("minute", 1000, "free_plan", ("guests",))
    assert plan.metadata == {
        "team": {"name": "growth", "size": 4},
        "tags": ("a", 1.5, None, False),
    }
    assert plan.descriptors[0].share_threshold
    assert plan.descriptors[0].rate_limit == RateLimit("year", 0)
    assert guest.rate_limit == RateLimit(name="guests")
    assert guest.rate_limit.unlimited
    assert (port.value, flag.value) == ("80", "yes")
    assert flag.rate_limit is None
    assert plan.origin.line == 4


def test_a_limit_knows_its_window() -> None:
    assert RateLimit("month", 5).window == FixedWindow(5, 30 * 86_400)
    assert RateLimit("month", 0).window is None
    assert RateLimit("month", 0).closed
    assert RateLimit().window is None
    assert not RateLimit().closed


@pytest.mark.parametrize(
    ("unit", "seconds"),
    [
        ("second", 1),
        ("minute", 60),
        ("hour", 3_600),
        ("day", 86_400),
        ("week", 604_800),
        ("month", 2_592_000),
        ("year", 31_536_000),
    ],
)
def test_units_are_as_long_as_in_the_original(unit: str, seconds: int) -> None:
    config = config_of(limited(f"unit: {unit.upper()}, requests_per_unit: 1"))
    limit = config.domains["d"].descriptors[0].rate_limit
    assert limit is not None
    assert limit.unit is not None
    assert UNIT_SECONDS[limit.unit] == seconds


@pytest.mark.parametrize(("text", "count"), [("0x10", 16), ("010", 8), ("0b11", 3), ("+7", 7)])
def test_numbers_are_read_as_the_original_reads_them(text: str, count: int) -> None:
    config = config_of(limited(f"unit: day, requests_per_unit: {text}"))
    limit = config.domains["d"].descriptors[0].rate_limit
    assert limit is not None
    assert limit.requests_per_unit == count
    assert len(config.warnings) == text.startswith("0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.yaml:1:1: error: there is nothing in it"),
        ("# nothing\n\n", "a.yaml:1:1: error: there is nothing in it"),
        ("'''", "a.yaml:1:4: error: not YAML"),
        ("- a", "a.yaml:1:1: error: found a list, expected a domain"),
        ("descriptors:", "field 'domain': missing or empty"),
        ("domain: ''", "field 'domain': missing or empty"),
        ("domain: [a]", "field 'domain': found a list"),
        ("domain: d\nlimits: []", "a.yaml:2:1: error: field 'limits': unknown field"),
        ("domain: d\n0.25: d", "unknown field '0.25'"),
        ("domain: d\ndescriptors: {}", "a.yaml:2:14: error: field 'descriptors': found a mapping"),
        ("domain: d\ndescriptors: [a]", "field 'descriptors[0]': found 'a', expected a descriptor"),
        ("domain: d\ndescriptors: [~]", "field 'descriptors[0]': found nothing"),
        ("domain: d\ndomain: e", "a.yaml:2:1: error: 'domain' is given twice"),
        (described("value: v"), "a.yaml:3:5: error: field 'descriptors[0].key': missing or empty"),
        (described("key: ''"), "field 'descriptors[0].key': missing or empty"),
        (described("key: [k]"), "field 'descriptors[0].key': found a list"),
        (described("key: k\nvalue: {a: b}"), "field 'descriptors[0].value': found a mapping"),
        (described("key: k\nvalue: 1.5"), "found 1.5, a number with a fraction; put it in quotes"),
        (described("key: k\nratelimit: {}"), "did you mean 'rate_limit'?"),
        (described("key: k\nrate_limit: 5"), "field 'descriptors[0].rate_limit': found 5"),
        (described("key: k\nshadow_mode: 'true'"), "found 'true', expected true or false"),
        (described("key: k\nmetadata: 5"), "field 'descriptors[0].metadata': found 5"),
        (described("key: k\nshare_threshold: true"), "there is no '*' in 'k'"),
        (described("key: k\nvalue: v\nshare_threshold: true"), "there is no '*' in 'k_v'"),
        (limited("requests_per_unit: 5"), "rate_limit.unit': missing; expected one of second"),
        (limited("unit: fortnight, requests_per_unit: 5"), "'fortnight' is not a unit"),
        (limited("unit: minutes, requests_per_unit: 5"), "did you mean 'minute'?"),
        (limited("unit: unknown, requests_per_unit: 5"), "'unknown' is not a unit"),
        (limited("unit: '', requests_per_unit: 5"), "'' is not a unit; expected one of second"),
        (limited("unit: [day], requests_per_unit: 5"), "rate_limit.unit': found a list"),
        (limited("unit: day, requestsperunit: 5"), "did you mean 'requests_per_unit'?"),
        (limited("unit: day, requests_per_unit: -1"), "expected a whole number from 0 to"),
        (limited("unit: day, requests_per_unit: 1.5"), "expected a whole number from 0 to"),
        (limited("unit: day, requests_per_unit: '5'"), "expected a whole number from 0 to"),
        (limited("unit: day, requests_per_unit: 4294967296"), "from 0 to 4294967295"),
        (limited("unit: day, requests_per_unit: 08"), "expected a whole number from 0 to"),
        (limited("unlimited: true, unit: day"), "what is unlimited has no unit"),
        (limited("unlimited: maybe"), "rate_limit.unlimited': found 'maybe'"),
        (limited("unlimited: true, replaces: [a]"), "replaces[0]': found 'a'"),
        (limited("unlimited: true, replaces: [{name: }]"), "replaces[0].name': missing or empty"),
        (limited("unlimited: true, replaces: a"), "expected a list of mappings with a name"),
        (limited("unlimited: true, name: a, replaces: [{name: a}]"), "'a' replaces itself"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, message: str) -> None:
    told = errors_of(text)
    assert any(message in each for each in told), told
    assert all(each.startswith("a.yaml:") for each in told)


def test_a_descriptor_is_there_once_on_its_level() -> None:
    twice = "domain: d\ndescriptors:\n  - {key: a, value: b}\n  - {key: a_b}\n"
    (told,) = errors_of(twice)
    assert told.startswith("a.yaml:4:5: error: field 'descriptors[1]': 'a_b' is described twice")
    assert told.endswith("the first is at a.yaml:3")


def test_all_errors_of_all_files_are_told_together() -> None:
    told = errors_of(
        "domain: d\ndescriptors: [{value: a}, {key: a, shadow: true}]",
        "'''",
        "domain: d\ndescriptors: [{key: b, rate_limit: {}}]",
    )
    assert [each.partition(":")[0] for each in told] == ["a.yaml"] * 2 + ["b.yaml"] + ["c.yaml"] * 2
    assert "the domain 'd' is in a.yaml already" in told[3]


def test_files_of_one_domain_are_merged_on_request() -> None:
    config = config_of(described("key: a"), described("key: b"), merge_domains=True)
    assert [each.key for each in config.domains["d"].descriptors] == ["a", "b"]
    (told,) = errors_of(described("key: a"), described("key: a"), merge_domains=True)
    assert "'a' is described twice; the first is at a.yaml:3" in told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (described("key: k\nunit: day"), "'unit' has no effect here; it belongs in rate_limit"),
        (limited("unlimited: true, shadow_mode: true"), "it belongs in a descriptor"),
        (limited("unlimited: true, requests_per_unit: 5"), "this has no effect"),
        (limited("unlimited: true, unit: never"), "this has no effect"),
        (limited("unit: day"), "it is read as 0, and nothing passes"),
        (limited("unlimited: true, replaces: [{name: x}]"), "a name that no limit in the domain"),
    ],
)
def test_what_the_original_ignores_is_a_warning(text: str, message: str) -> None:
    (told,) = warnings_of(text)
    assert message in told
    assert told.startswith("a.yaml:")


@pytest.mark.parametrize(
    "text",
    [
        "domain: d\ndescriptors: " + "[{key: a, descriptors: " * 10_000,
        "domain: d\na: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(60_000)),
        "domain: d # " + "x" * 2_000_000,
    ],
)
def test_what_is_too_much_is_refused(text: str) -> None:
    assert errors_of(text)
