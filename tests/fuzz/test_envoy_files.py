"""Any file of envoyproxy/ratelimit is read or refused; what is read finds limits and converts."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.policy.envoy_config.conversion import convert
from headgate.policy.envoy_config.reader import read_envoy_config
from headgate.policy.problems import PolicyError
from tests.support.fuzzing import (
    Changes,
    anything,
    bounded,
    changed,
    changes,
    fuzz_count,
    paths_in,
    replaced,
)

GOOD = """\
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 0x10, name: users}
    descriptors:
      - key: path
        value: "/a/*"
        share_threshold: true
        rate_limit: {unit: DAY, requests_per_unit: 9}
      - {key: path, value: "/b", shadow_mode: yes, rate_limit: {unlimited: true, name: free}}
  - key: user
    value: ada
    quota_mode: on
    detailed_metric: true
    value_to_metric: true
    metadata: {a: [1, 2.5, ~]}
    rate_limit: {unit: week, requests_per_unit: 010, replaces: [{name: users}, {name: free}]}
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 4294967295}}
"""
DATA: Any = yaml.safe_load(GOOD)
PIECES = st.sampled_from(
    (
        *(
            "{",
            "}",
            "[",
            "]",
            ": ",
            ",",
            "- ",
            "\n",
            "  ",
            "\t",
            "#",
            "&a ",
            "*a",
            "!x ",
            "'",
            '"',
            "|",
        ),
        *("0x", "0b", "0o9", "1e999", "-1", ".inf", ".nan", "~", "yes", "2_0", "4294967296", "\0"),
        *(
            "*",
            "**",
            "replaces: ",
            "unlimited: true",
            "key: ",
            "value: ",
            "year",
            "\ud800",
            "9" * 200,
        ),
    )
)
VALUES = anything | st.sampled_from(["minute", "*", "a*", "users", "edge", "", "0x_", "_1", "1_"])
LOOKUPS: tuple[tuple[tuple[str, str], ...], ...] = (
    (("user", "ada"),),
    (("user", "bob"), ("path", "/a/b")),
    (("remote_address", "192.0.2.1"),),
    (("", ""),),
    (("user", "\udcff"), ("path", "/b"), ("path", "/b")),
)


def check(*texts: str | bytes, merge_domains: bool = False) -> None:
    """Read *texts*, and use what is read: refused with problems, or nothing raises."""
    files = [(f"{number}.yaml", text) for number, text in enumerate(texts)]
    with bounded():
        try:
            config = read_envoy_config(files, merge_domains=merge_domains)
        except PolicyError as error:
            assert error.errors
            assert all(str(problem).isprintable() for problem in error.problems)
            return
        for domain in config.domains:
            for entries in LOOKUPS:
                config.lookup(domain, entries)
                config.free_places(domain, entries)
        convert(config)


@settings(max_examples=fuzz_count(300))
@given(changes(len(GOOD), PIECES), st.booleans())
def test_a_damaged_file_is_read_or_refused(several: Changes, is_double: bool) -> None:
    text = changed(GOOD, several)
    check(*([text, GOOD] if is_double else [text]), merge_domains=is_double)


@given(st.binary(max_size=120) | st.text(max_size=120).map(lambda text: text.encode()))
@example(b"")
@example(b"\xff\xfed\x00")
@example(b"domain: a\ndescriptors: &a\n  - {key: b, descriptors: *a}\n")
def test_noise_is_refused(noise: bytes) -> None:
    check(noise)


@settings(max_examples=fuzz_count(300))
@given(st.sampled_from(paths_in(DATA)), VALUES)
def test_data_with_anything_anywhere_is_read_or_refused(path: tuple[Any, ...], value: Any) -> None:
    check(yaml.safe_dump(replaced(DATA, path, value), allow_unicode=False))
