"""What makes Envoy find the address of a client."""

from __future__ import annotations

from headgate.config import Address
from headgate.config.gateway import GatewaySettings
from headgate.gateway.envoy.client_address import ClientAddress, client_address
from headgate.policy.loader import read_policy


def _found(ip: str = "{}", *listen: Address) -> ClientAddress:
    policy = read_policy(f"version: 1\nidentity: {{ip: {ip}}}\nrules: []\n")
    return client_address(policy, GatewaySettings(listen=listen or (Address("127.0.0.1", 1),)))


def test_without_trusted_proxies_the_peer_is_the_client() -> None:
    assert _found().manager == {"use_remote_address": True, "skip_xff_append": True}
    assert _found("{header: true-client-ip}").warnings == ()


def test_trusted_proxies_are_told_in_both_ways_to_write_ipv4() -> None:
    found = _found("{trusted_proxies: [10.0.0.0/8, '2001:db8::/32', '::ffff:192.0.2.0/120']}")
    [detection] = found.manager["original_ip_detection_extensions"]
    assert [
        (one["address_prefix"], one["prefix_len"])
        for one in detection["typed_config"]["xff_trusted_cidrs"]["cidrs"]
    ] == [
        ("10.0.0.0", 8),
        ("::ffff:10.0.0.0", 104),
        ("2001:db8::", 32),
        ("::ffff:c000:200", 120),
        ("192.0.2.0", 24),
    ]


def test_a_header_that_envoy_cannot_read_is_warned_of_and_nobody_is_believed() -> None:
    found = _found("{trusted_proxies: [10.0.0.0/8], header: forwarded}")
    assert found.manager["use_remote_address"] is True
    [told] = found.warnings
    assert "forwarded" in told
    assert "x-forwarded-for" in told


def test_a_socket_gets_an_address_for_its_peers() -> None:
    found = _found("{}", Address(path="/run/a.sock"))
    assert found.manager["use_remote_address"] is False
    assert [one["name"] for one in found.manager["original_ip_detection_extensions"]] == [
        "envoy.http.original_ip_detection.custom_header"
    ]


def test_no_header_of_ours_can_come_from_outside_or_goes_further() -> None:
    found = _found("{trusted_proxies: [10.0.0.0/8]}", Address(path="/run/a.sock"))
    first = found.mutations[: len(found.internal)]
    assert [one["remove"] for one in first] == list(found.internal)
    assert all(name.startswith("x-headgate-") for name in found.internal)
