"""No two callers share a key, and no client can pass for another address."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_network
from types import MappingProxyType

from hypothesis import example, given
from hypothesis import strategies as st

from headgate.engine.request import Request
from headgate.limits import parse_limits
from headgate.policy.identity import Identifier, address_key, client_address
from headgate.policy.identity.parts import hashed, spelled
from headgate.policy.model import AddressSource, Fallback, Identity, Match, Rule, Source
from tests.support.histories import examples

# ---- keys --------------------------------------------------------------------------------------

ANYTHING = st.text(st.characters(), max_size=20)  # lone surrogates too
TRICKY = st.text("ab_&=%!#~:{}0", min_size=1, max_size=6)
LONG = st.builds(lambda text, count: text * count, TRICKY, st.integers(20, 300))
IMITATED = st.one_of(TRICKY, LONG).flatmap(
    lambda text: st.sampled_from([spelled(text), hashed(text), f"!ip={text}", "!shared", "ip=x"])
)
VALUES = st.none() | st.one_of(TRICKY, LONG, IMITATED, ANYTHING).filter(bool)
NAMES = ("a", "b", "secret")
CALLERS = st.fixed_dictionaries(dict.fromkeys(NAMES, VALUES))
PEERS = st.sampled_from(["1.2.3.4", "5.6.7.8", "::1", "2001:db8::1"])
KEY_BY = st.permutations([*NAMES, "ip"])
Caller = dict[str, str | None]


def _sources() -> dict[str, Source]:
    return {name: Source(attribute=name, secret=name == "secret") for name in NAMES}


def _key(caller: Caller, peer: str, key_by: list[str], fallback: Fallback) -> str | None:
    identity = Identity(MappingProxyType(_sources()), fallback=fallback)
    identifier = Identifier(identity, salt=b"salt")
    said = {name: value for name, value in caller.items() if value is not None}
    request = Request(attributes=said, peer=peer)
    rule = Rule("r", Match(), tuple(key_by), {None: parse_limits("1/s")})
    return identifier.key(rule, request, identifier.find(request))


@examples(300)
@given(CALLERS, CALLERS, PEERS, PEERS, KEY_BY, st.sampled_from(["ip", "shared"]))
@example(
    {"a": "a_b", "b": "c", "secret": None},
    {"a": "a", "b": "b_c", "secret": None},
    "::1",
    "::1",
    ["a", "b", "secret", "ip"],
    "ip",
)
def test_keys_are_equal_only_for_equal_callers(
    one: Caller, two: Caller, peer: str, other: str, key_by: list[str], fallback: Fallback
) -> None:
    same = (one, peer) == (two, other)
    assert (_key(one, peer, key_by, fallback) == _key(two, other, key_by, fallback)) is same


@examples(200)
@given(CALLERS, st.sampled_from(NAMES), VALUES, KEY_BY)
def test_a_change_in_one_part_changes_the_key(
    caller: Caller, name: str, value: str | None, key_by: list[str]
) -> None:
    changed = {**caller, name: value}
    keys = {_key(each, "1.2.3.4", key_by, "shared") for each in (caller, changed)}
    assert len(keys) == 1 + (caller != changed)


@examples(200)
@given(st.one_of(TRICKY, LONG, ANYTHING).filter(bool), st.sampled_from(NAMES))
def test_a_value_that_imitates_the_key_of_another_has_a_key_of_its_own(
    value: str, name: str
) -> None:
    for imitation in (spelled(value, b"salt"), hashed(value, b"salt"), f"{value}&b=x"):
        keys = {_key({name: each}, "", [name, "ip"], "ip") for each in (value, imitation)}
        assert len(keys) == 1 + (value != imitation)


@examples(200)
@given(CALLERS, KEY_BY)
def test_keys_are_short_printable_ascii_and_hold_no_secret(
    caller: Caller, key_by: list[str]
) -> None:
    key = _key(caller, "1.2.3.4", key_by, "ip")
    assert key is not None
    assert key.isascii()
    assert key.isprintable()
    assert len(key) <= len(key_by) * 150
    [secret] = [part for part in key.split("&") if part.startswith("secret")]
    said = caller["secret"]
    assert secret == ("secret!ip=1.2.3.4" if said is None else f"secret={hashed(said, b'salt')}")


@examples(100)
@given(CALLERS, KEY_BY)
def test_a_rule_is_skipped_only_if_something_is_missing(caller: Caller, key_by: list[str]) -> None:
    assert (_key(caller, "", key_by, "skip") is None) is (None in caller.values())


# ---- addresses ---------------------------------------------------------------------------------

TRUSTED = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
PROXIES = st.one_of(
    st.integers(0, 2**24 - 1).map(lambda n: IPv4Address(0x0A000000 + n)),
    st.integers(0, 2**120 - 1).map(lambda n: IPv6Address((0xFD << 120) + n)),
)
ADDRESSES = st.one_of(
    st.integers(0, 2**32 - 1).map(IPv4Address), st.integers(0, 2**128 - 1).map(IPv6Address)
)
Address = IPv4Address | IPv6Address


def _untrusted(address: Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    plain = mapped or address
    return not any(plain.version == net.version and plain in net for net in TRUSTED)


CLIENTS = ADDRESSES.filter(_untrusted)
FORGED = st.one_of(
    st.text(st.characters(), max_size=40),
    st.text('",;=\\ 1.[]:for', max_size=40),
    st.lists(st.one_of(ADDRESSES, PROXIES).map(str), max_size=70).map(", ".join),
    st.sampled_from(['for="', 'for=6.6.6.6;host="', '"', "\\", '\\"', "for=10.0.0.9,", "unknown"]),
)
HOSTS = st.none() | FORGED
"""What a client says its host is: proxies write it into `Forwarded`, in quotes."""

SPLITS = st.booleans()
"""Whether a proxy adds to the last line or adds a line."""


def _settings(header: str) -> AddressSource:
    return AddressSource(trusted_proxies=TRUSTED, header=header)


def _listed(address: Address, port: int | None, _: str | None) -> str:
    if port is None:
        return str(address)
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"


def _element(address: Address, port: int | None, host: str | None) -> str:
    node = str(address) if address.version == 4 else f"[{address}]"
    node = node if port is None else f"{node}:{port}"
    node = node if node.replace(".", "").isdigit() else f'"{node}"'
    if host is None:
        return f"for={node}"
    quoted = host.replace("\\", "\\\\").replace('"', '\\"')
    return f'for={node};host="{quoted}";proto=https'


HEADERS = st.sampled_from([("x-forwarded-for", _listed), ("forwarded", _element)])


@st.composite
def _trails(draw: st.DrawFn) -> tuple[str, list[str], list[str], str, Address]:
    """The header, what a client sent in it, the same after the proxies, the peer, the client."""
    header, written = draw(HEADERS)
    client, proxies = draw(CLIENTS), draw(st.lists(PROXIES, min_size=1, max_size=4))
    forged = draw(st.lists(FORGED, max_size=3))
    lines = list(forged)
    for sender in [client, *proxies[:-1]]:
        entry = written(sender, draw(st.none() | st.integers(0, 65535)), draw(HOSTS))
        if draw(SPLITS) and lines:
            lines[-1] = f"{lines[-1]}, {entry}"
        else:
            lines.append(entry)
    return header, forged, lines, str(proxies[-1]), client


@examples(500)
@given(_trails())
def test_nothing_that_a_client_sends_changes_its_address(
    trail: tuple[str, list[str], list[str], str, Address],
) -> None:
    header, _, lines, peer, client = trail
    request = Request(headers=tuple((header, line) for line in lines), peer=peer)
    mapped = client.ipv4_mapped if isinstance(client, IPv6Address) else None
    assert client_address(request, _settings(header)) == (mapped or client)


@examples(200)
@given(st.lists(FORGED, max_size=4), ADDRESSES, st.sampled_from(["x-forwarded-for", "forwarded"]))
def test_any_text_in_the_header_has_an_answer(lines: list[str], peer: Address, header: str) -> None:
    request = Request(headers=tuple((header, line) for line in lines), peer=str(peer))
    address = client_address(request, _settings(header))
    assert address is not None
    assert address_key(address, AddressSource())


@examples(200)
@given(st.text(st.characters(), max_size=60), st.lists(FORGED, max_size=2))
def test_any_text_as_the_peer_has_an_answer(peer: str, lines: list[str]) -> None:
    headers = tuple(("x-forwarded-for", line) for line in lines)
    client_address(Request(headers=headers, peer=peer), _settings("x-forwarded-for"))


@examples(200)
@given(ADDRESSES, st.integers(0, 32), st.integers(0, 128))
def test_a_group_is_the_network_around_the_address(address: Address, four: int, six: int) -> None:
    settings = AddressSource(ipv4_prefix=four, ipv6_prefix=six)
    network = ip_network(address_key(address, settings))
    assert address in network
    assert network.prefixlen == (four if address.version == 4 else six)
