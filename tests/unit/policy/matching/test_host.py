from __future__ import annotations

import pytest

from headgate.policy.conditions import host_readings, normalised_host, wildcards


@pytest.mark.parametrize(
    ("raw", "host"),
    [
        ("example.com", "example.com"),
        ("EXAMPLE.com", "example.com"),
        ("example.com:8080", "example.com"),
        ("example.com:", "example.com"),
        ("example.com.", "example.com"),
        ("Example.com.:443", "example.com"),
        (" example.com ", "example.com"),
        ("user@example.com:80", "example.com"),
        ("example.com:80:81", "example.com"),
        ("example.com:80@other.example", "example.com"),
        ("example.com:[::1]", "example.com"),
        ("example.com:80@[::1]", "example.com"),
        ("example.com:@::1", "example.com"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("[::1]", "::1"),
        ("[::1]:8080", "::1"),
        ("[2001:DB8:0::1]:443", "2001:db8::1"),
        ("2001:db8:0:0:0:0:0:1", "2001:db8::1"),
        ("[fe80::1%25eth0]:80", "fe80::1"),
        ("[nonsense", "nonsense"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("XN--bcher-kva.example", "xn--bcher-kva.example"),
        ("", ""),
        (".", ""),
        ("\ud800", "\ud800"),
        ("é" * 1000, "é" * 1000),
    ],
)
def test_a_host_has_one_spelling(raw: str, host: str) -> None:
    assert normalised_host(raw) == host


@pytest.mark.parametrize(
    ("raw", "hosts"),
    [
        ("example.com:80", ("example.com",)),
        ("user@example.com:80", ("example.com",)),
        ("user:x@example.com", ("user", "example.com")),
        ("example.com:@::1", ("example.com", "::1")),
        ("user@[::1]:80", ("", "::1")),
        ("example.com/other", ("example.com/other", "example.com")),
        ("example.com?other@a", ("a", "example.com")),
        ("exam\tple.com", ("exam\tple.com", "example.com")),
        ("::1", ("::1",)),
    ],
)
def test_a_malformed_host_has_the_reading_of_a_url_too(raw: str, hosts: tuple[str, ...]) -> None:
    assert host_readings(raw) == hosts


def test_a_host_falls_under_the_wildcards_above_it() -> None:
    assert wildcards("a.b.c", 5) == ["*.b.c", "*.c"]
    assert wildcards("a", 5) == []


def test_no_more_labels_are_looked_at_than_any_wildcard_has() -> None:
    assert wildcards("a." * 100_000 + "b.c", 2) == ["*.b.c", "*.c"]
