"""Which limit a descriptor has, and on which counter it counts."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.policy.envoy_config.config import (
    Descriptor,
    Domain,
    EnvoyConfig,
    RateLimit,
    without_replaced,
)
from headgate.policy.envoy_config.reader import read_envoy_config

ORDER = """\
domain: edge
descriptors:
  - key: ip
    rate_limit: {unit: second, requests_per_unit: 1}
  - key: ip
    value: 10.*
    rate_limit: {unit: second, requests_per_unit: 2}
  - key: ip
    value: 10.0.*
    rate_limit: {unit: second, requests_per_unit: 3}
  - key: ip
    value: 10.0.0.1
    rate_limit: {unit: second, requests_per_unit: 4}
  - key: ip
    value: 10.0.0.2
  - key: path
    value: /api/*/items/*/edit
    rate_limit: {unit: second, requests_per_unit: 5}
  - key: user
    rate_limit: {unit: second, requests_per_unit: 6}
    descriptors:
      - key: plan
        rate_limit: {unit: second, requests_per_unit: 7}
      - key: region
        value: eu
        descriptors:
          - key: plan
            rate_limit: {unit: second, requests_per_unit: 8}
  - key: user
    value: root
    descriptors:
      - key: team
        rate_limit: {unit: second, requests_per_unit: 9}
"""


def config_of(text: str) -> EnvoyConfig:
    return read_envoy_config([("a.yaml", text)])


def limit_of(config: EnvoyConfig, entries: str) -> int | None:
    """The requests per unit for entries such as `user=ada plan=free`."""
    pairs = [entry.split("=", 1) for entry in entries.split()]
    found = config.lookup("edge", [(key, value) for key, value in pairs])
    return None if found is None else found.limit.requests_per_unit


@pytest.mark.parametrize(
    ("entries", "limit"),
    [
        ("ip=192.168.0.1", 1),
        ("ip=", 1),
        ("ip=10.1.1.1", 2),
        ("ip=10.", 2),
        ("ip=10.0.7.7", 2),  # the first pattern that fits, not the longest
        ("ip=10.0.0.1", 4),
        ("ip=10.0.0.2", None),  # named, without a limit: it passes
        ("path=/api/v1/items/7/edit", 5),
        ("path=/api/v1/items/7/edit/", None),
        ("path=/api//items//edit", 5),
        ("path=/api/items/edit", None),
        ("path=/api/items/7/edit", None),
        ("user=ada", 6),
        ("user=ada plan=free", 7),
        ("user=ada plan=free x=y", None),
        ("user=ada x=y", None),
        ("user=ada region=eu", None),
        ("user=ada region=eu plan=free", 8),
        ("user=ada region=us plan=free", None),
        ("plan=free user=ada", None),
        ("user=root", None),
        ("user=root team=a", 9),
        ("user=root plan=free", None),  # nothing goes back to try the default
        ("unknown=1", None),
        ("", None),
    ],
)
def test_the_most_specific_descriptor_at_the_depth_of_the_request_counts(
    entries: str, limit: int | None
) -> None:
    assert limit_of(config_of(ORDER), entries) == limit


def test_an_unknown_domain_has_no_limits() -> None:
    assert config_of(ORDER).lookup("other", [("user", "ada")]) is None


def test_the_key_and_the_value_are_looked_up_as_one_text() -> None:
    config = config_of(
        "domain: edge\ndescriptors:\n"
        "  - {key: a, value: b, rate_limit: {unit: day, requests_per_unit: 1}}\n"
        "  - {key: wild*, rate_limit: {unit: day, requests_per_unit: 2}}\n"
    )
    assert limit_of(config, "a=b") == 1
    assert limit_of(config, "a_b=anything") == 1
    assert limit_of(config, "wilderness=deep") == 2


def test_what_is_found_carries_the_modes_of_the_last_step_alone() -> None:
    config = config_of(
        "domain: edge\ndescriptors:\n"
        "  - key: a\n    shadow_mode: true\n    metadata: {of: a}\n    descriptors:\n"
        "      - key: b\n        quota_mode: true\n        metadata: {of: b}\n"
        "        rate_limit: {unlimited: true}\n"
    )
    found = config.lookup("edge", [("a", "1"), ("b", "2")])
    assert found is not None
    assert found.limit.unlimited
    assert not found.shadow_mode
    assert found.quota_mode
    assert found.metadata == {"of": "b"}


SHARED = """\
domain: edge
descriptors:
  - key: dir
    value: docs/*
    share_threshold: true
    descriptors:
      - key: file
        rate_limit: {unit: hour, requests_per_unit: 1}
      - key: file
        value: a*
        value_to_metric: true
        rate_limit: {unit: hour, requests_per_unit: 2}
      - key: size
        detailed_metric: true
        rate_limit: {unit: hour, requests_per_unit: 3}
  - key: dir
    value: own/*
    rate_limit: {unit: hour, requests_per_unit: 4}
"""


@pytest.mark.parametrize(
    ("entries", "key", "metric"),
    [
        ("dir=docs/x file=1", "edge|dir|docs/*|file|1", "edge.dir_docs/*.file"),
        ("dir=docs/y file=1", "edge|dir|docs/*|file|1", "edge.dir_docs/*.file"),
        ("dir=docs/* file=1", "edge|dir|docs/*|file|1", "edge.dir_docs/*.file"),
        ("dir=docs/x file=ab", "edge|dir|docs/*|file|ab", "edge.dir_docs/*.file_ab"),
        ("dir=docs/x size=9", "edge|dir|docs/*|size|9", "edge.dir_docs/*.size_9"),
        ("dir=docs/x size=", "edge|dir|docs/*|size|", "edge.dir_docs/*.size"),
        ("dir=own/x", "edge|dir|own/x", "edge.dir_own/*"),
        ("dir=own/y", "edge|dir|own/y", "edge.dir_own/*"),
    ],
)
def test_a_shared_threshold_has_one_counter(entries: str, key: str, metric: str) -> None:
    pairs = [entry.split("=", 1) for entry in entries.split()]
    found = config_of(SHARED).lookup("edge", [(name, value) for name, value in pairs])
    assert found is not None
    assert (found.key, found.metric) == (key, metric)


def test_a_limit_that_is_replaced_is_left_out() -> None:
    config = config_of(
        "domain: edge\ndescriptors:\n"
        "  - {key: a, rate_limit: {name: a, unit: day, requests_per_unit: 1}}\n"
        "  - {key: b, rate_limit: {replaces: [{name: a}, {name: c}], unlimited: true}}\n"
        "  - {key: c, rate_limit: {name: c, unlimited: true}}\n"
        "  - {key: d, rate_limit: {unit: day, requests_per_unit: 1}}\n"
    )
    a, b, c, d, none = (config.lookup("edge", [(key, "1")]) for key in "abcde")
    assert without_replaced([a, d, none]) == [a, d, None]
    assert without_replaced([a, b, c, d, none]) == [None, b, c, d, None]


PARTS = st.text("ab*_", max_size=3)
KEYS = st.sampled_from(["a", "b", "a_b", "b*"])
ENTRIES = st.lists(st.tuples(KEYS, PARTS), max_size=3)


def descriptors(depth: int) -> st.SearchStrategy[tuple[Descriptor, ...]]:
    below = descriptors(depth - 1) if depth else st.just(())
    one = st.builds(
        Descriptor,
        key=KEYS,
        value=st.none() | PARTS.filter(bool),
        rate_limit=st.none() | st.builds(RateLimit, st.just("day"), st.integers(1, 1000)),
        descriptors=below,
    )
    return st.lists(one, max_size=4, unique_by=lambda each: each.name).map(tuple)


def slowly_found(level: Sequence[Descriptor], entries: Sequence[tuple[str, str]]) -> object:
    """The same by trying all descriptors one after the other."""
    (key, value), rest = entries[0], entries[1:]
    wanted = f"{key}_{value}"
    exact = [each for each in level if each.name == wanted]
    fitting = [each for each in level if "*" in each.name and fits(each.name, wanted)]
    default = [each for each in level if each.name == key]
    for each in (exact + fitting + default)[:1]:
        return slowly_found(each.descriptors, rest) if rest else each.rate_limit
    return None


def fits(pattern: str, text: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text) is not None


@given(descriptors(2), ENTRIES.filter(bool))
def test_finding_is_like_trying_all(
    level: tuple[Descriptor, ...], entries: list[tuple[str, str]]
) -> None:
    found = EnvoyConfig({"d": Domain("d", level)}).lookup("d", entries)
    assert (None if found is None else found.limit) == slowly_found(level, entries)
