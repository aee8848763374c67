"""Identity: where things about a caller are found."""

from ipaddress import ip_network
from typing import Any

import pytest

from headgate.policy.loader import examine_policy_data, read_policy
from headgate.policy.model import DEFAULT_SOURCES, AddressSource, Identity, Source
from headgate.policy.problems import Problem


def read(identity: Any, key_by: str = "ip") -> tuple[Identity | None, tuple[Problem, ...]]:
    rule = {"id": "a", "key_by": key_by, "limit": "5/s"}
    examined = examine_policy_data({"version": 1, "identity": identity, "rules": [rule]})
    return (examined.policy.identity if examined.policy else None), examined.problems


def good(identity: Any, key_by: str = "ip") -> Identity:
    found, problems = read(identity, key_by)
    assert found is not None, problems
    return found


def test_nothing_given_is_the_usual() -> None:
    assert good({}) == Identity()


@pytest.mark.parametrize(
    ("source", "meant"),
    [
        ({"header": "X-Team"}, Source(header="x-team")),
        ({"cookie": "Team", "default": "none"}, Source(cookie="Team", default="none")),
        ({"attribute": "team", "secret": True}, Source(attribute="team", secret=True)),
        (
            {"lookup": "api_key", "values": {"k1": "red", "k2": 5}, "default": "blue"},
            Source(lookup="api_key", values={"k1": "red", "k2": "5"}, default="blue"),
        ),
    ],
)
def test_a_source_of_ones_own_can_be_counted_by(source: Any, meant: Source) -> None:
    found = good({"team": source}, key_by="team")
    assert found.sources == {**DEFAULT_SOURCES, "team": meant}


def test_an_api_key_stays_secret_unless_it_says_otherwise() -> None:
    assert good({"api_key": {"cookie": "key"}}).sources["api_key"].secret
    assert not good({"api_key": {"cookie": "key", "secret": False}}).sources["api_key"].secret
    assert not good({"tenant": {"cookie": "t"}}).sources["tenant"].secret


def test_keys_and_values_of_a_lookup_are_taken_as_they_are_written() -> None:
    policy = read_policy(
        "version: 1\nidentity: {tier: {lookup: api_key, values: {010: yes, 1e3: on, 5:30: 1_0}}}\n"
    )
    assert policy.identity.sources["tier"].values == {"010": "yes", "1e3": "on", "5:30": "1_0"}


def test_an_address_is_read() -> None:
    given = {
        "trusted_proxies": ["10.0.0.0/8", "192.0.2.1", "2001:db8::/32"],
        "ipv4_prefix": 24,
        "ipv6_prefix": 56,
        "header": "X-Real-Ip",
    }
    networks = tuple(ip_network(text) for text in ("10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32"))
    assert good({"ip": given}).address == AddressSource(networks, 24, 56, "x-real-ip")
    assert good({"ip": {"trusted_proxies": "10.0.0.1"}}).address.trusted_proxies == (
        ip_network("10.0.0.1"),
    )


@pytest.mark.parametrize("word", ["ip", "shared", "skip"])
def test_every_fallback_is_read(word: str) -> None:
    assert good({"fallback": word}).fallback == word


def test_trusting_everybody_is_warned_of() -> None:
    _, (problem,) = read({"ip": {"trusted_proxies": ["0.0.0.0/0"]}})
    assert problem.severity == "warning"
    assert problem.message == "every address is trusted: any caller can choose its own address"


@pytest.mark.parametrize(
    ("identity", "field", "message"),
    [
        ([], "identity", "found a list, expected a mapping from names to where they are found"),
        ({"global": {"header": "x"}}, "identity.global", "'global' has a meaning of its own"),
        ({"host": {"header": "x"}}, "identity.host", "'host' has a meaning of its own"),
        ({"a:b": {"header": "x"}}, "identity['a:b']", "'a:b' is not a name"),
        ({"team": "x-team"}, "identity.team", "found 'x-team', expected the source of a name"),
        ({"team": {}}, "identity.team", "found none, expected exactly one of header"),
        (
            {"team": {"header": "x", "cookie": "y"}},
            "identity.team",
            "found header and cookie, expected exactly one of header",
        ),
        ({"team": {"header": "x y"}}, "identity.team.header", "'x y' is not the name of a header"),
        ({"team": {"header": ""}}, "identity.team.header", "found an empty text, expected"),
        ({"team": {"heder": "x", "cookie": "y"}}, "identity.team.heder", "unknown field"),
        (
            {"team": {"header": "x", "secret": "yes"}},
            "identity.team.secret",
            "found 'yes', expected true or false",
        ),
        (
            {"team": {"lookup": "api_key"}},
            "identity.team",
            "lookup and values need each other",
        ),
        (
            {"team": {"header": "x", "values": {"a": "b"}}},
            "identity.team",
            "lookup and values need each other",
        ),
        (
            {"team": {"lookup": "api_key", "values": {}}},
            "identity.team.values",
            "found a mapping, expected values: a mapping with at least one entry",
        ),
        (
            {"team": {"lookup": "api_kee", "values": {"a": "b"}}},
            "identity.team.lookup",
            "there is no source 'api_kee' to look up",
        ),
        (
            {"team": {"lookup": "ip", "values": {"a": "b"}}},
            "identity.team.lookup",
            "there is no source 'ip' to look up",
        ),
        (
            {"team": {"lookup": "team", "values": {"a": "b"}}},
            "identity.team.lookup",
            "looked up in a circle",
        ),
        ({"fallback": "none"}, "identity.fallback", "found 'none'"),
        ({"ip": []}, "identity.ip", "found a list, expected the source of the address"),
        ({"ip": {"ipv4_prefix": 33}}, "identity.ip.ipv4_prefix", "found 33, expected a whole"),
        ({"ip": {"ipv6_prefix": 0}}, "identity.ip.ipv6_prefix", "found 0, expected a whole"),
        (
            {"ip": {"trusted_proxies": ["10.0.0.1/8"]}},
            "identity.ip.trusted_proxies[0]",
            "'10.0.0.1/8' is not an address or a network",
        ),
        (
            {"ip": {"trusted_proxies": ["all"]}},
            "identity.ip.trusted_proxies[0]",
            "'all' is not an address or a network",
        ),
        (
            {"ip": {"trusted_proxies": []}},
            "identity.ip.trusted_proxies",
            "found a list, expected an address or a network, or a list of at least one",
        ),
        ({"ip": {"trusted_proxies": [1]}}, "identity.ip.trusted_proxies[0]", "'1' is not an"),
    ],
)
def test_a_wrong_identity_is_told_and_nothing_else(identity: Any, field: str, message: str) -> None:
    key_by = "team" if isinstance(identity, dict) and "team" in identity else "ip"
    found, (problem,) = read(identity, key_by)
    assert found is None
    assert problem.field == field
    assert problem.message.startswith(message)


def test_a_network_with_too_much_in_it_says_which_is_meant() -> None:
    _, (problem,) = read({"ip": {"trusted_proxies": "10.0.0.1/8"}})
    assert problem.hint == "did you mean '10.0.0.0/8'?"


def test_every_source_of_a_circle_is_named_once() -> None:
    circle = {
        "a": {"lookup": "b", "values": {"x": "y"}},
        "b": {"lookup": "a", "values": {"x": "y"}},
        "c": {"lookup": "api_key", "values": {"x": "y"}},
    }
    _, problems = read(circle)
    assert [problem.field for problem in problems] == ["identity.a.lookup", "identity.b.lookup"]


def test_keys_of_callers_are_not_told_in_messages() -> None:
    _, (problem,) = read({"tier": {"lookup": "api_key", "values": {"k1": "a", "s3cret": None}}})
    assert problem.field == "identity.tier.values[1]"
    assert "s3cret" not in str(problem)
