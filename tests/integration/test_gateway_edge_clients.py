"""Whose request it is: the gateway's Envoy and `headgate.policy.identity` agree on the client."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import httpx
import pytest

from headgate.config import Address
from headgate.engine.request import Request
from headgate.policy.identity.address import client_address, read_address
from headgate.policy.loader import read_policy
from tests.support.envoy_edge import HOST, NO_SERVICE, Gateway, echoing, seen
from tests.support.servers import free_port, release_port, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.policy.model import Policy

_ENTRIES = (
    *("10.0.0.1", "10.9.9.9", "192.168.7.7", "127.0.0.1"),
    *("2001:db8::1", "2001:DB8:0::2", "::ffff:10.0.0.1"),
    *("203.0.113.7", "6.6.6.6", "192.168.7.8", "2a00::1", "::ffff:9.9.9.9"),
)
"""The first seven are trusted."""


def _policy(header: str = "x-forwarded-for") -> Policy:
    return read_policy(
        f"""\
version: 1
identity:
  ip: {{header: {header}, trusted_proxies: [127.0.0.1, 10.0.0.0/8, "2001:db8::/32", 192.168.7.7]}}
rules: []
"""
    )


def _trails(count: int) -> list[list[str]]:
    """Lines of a header that goes from hop to hop; often the last hops are believed."""
    chosen = random.Random(7)
    made = [["6.6.6.6"] * 20, [",".join(["6.6.6.6", *["10.0.0.1"] * 19])], [""], []]
    while len(made) < count:
        hops = [chosen.choice(_ENTRIES) for _ in range(chosen.randint(1, 6))]
        hops += [chosen.choice(_ENTRIES[:7]) for _ in range(chosen.randint(0, 3))]
        parted = chosen.randint(0, len(hops))
        lines = [hops[:parted], hops[parted:]]
        made.append([chosen.choice([",", ", ", " ,"]).join(line) for line in lines if line])
    return made


def _seen_by(gateway: Gateway, count: int) -> dict[str, str]:
    """The client of each path, once the log has *count* lines."""
    log = gateway.directory / "access.log"
    wait_until(lambda: log.read_text().count("\n") >= count, "all lines are there")
    lines = map(json.loads, log.read_text().splitlines())
    return {line["path"]: str(read_address(line["client"])) for line in lines}


@pytest.mark.parametrize("header", ["x-forwarded-for", "true-client-ip"])
def test_the_client_is_the_one_that_the_rules_see(tmp_path: Path, header: str) -> None:
    policy = _policy(header)
    trails = _trails(100)
    log = str(tmp_path / "access.log")
    with (
        echoing() as upstream,
        Gateway(tmp_path, policy, NO_SERVICE, upstream=[upstream], access_log=log) as gateway,
        httpx.Client(base_url=gateway.url) as client,
    ):
        expected, forwarded = {}, {}
        for number, lines in enumerate(trails):
            headers = tuple((header, line) for line in lines)
            reply = client.get(f"/{number}", headers=headers)
            assert reply.status_code == 200
            request = Request(method="GET", path="/", headers=headers, peer=HOST)
            expected[f"/{number}"] = str(client_address(request, policy.identity.address))
            forwarded[number] = ",".join(seen(reply, "x-forwarded-for"))
        assert _seen_by(gateway, len(trails)) == expected
    for number, lines in enumerate(trails):
        trail = lines if header == "x-forwarded-for" else []
        assert forwarded[number].strip(",") == ",".join([*filter(None, trail), HOST])


@pytest.mark.parametrize("header", ["x-forwarded-for", "true-client-ip"])
def test_a_trail_that_is_too_long_to_be_followed_is_refused(tmp_path: Path, header: str) -> None:
    with (
        echoing() as upstream,
        Gateway(tmp_path, _policy(header), NO_SERVICE, upstream=[upstream]) as gateway,
    ):
        reply = httpx.get(gateway.url, headers={header: ",".join(["6.6.6.6"] * 21)})
    assert reply.status_code == 400
    assert reply.json()["error"] == "bad_request"


def test_without_trusted_proxies_nobody_says_who_it_is(tmp_path: Path) -> None:
    log = str(tmp_path / "access.log")
    with (
        echoing() as upstream,
        Gateway(
            tmp_path,
            "version: 1\nrules: []\n",
            NO_SERVICE,
            upstream=[upstream],
            access_log=log,
        ) as gateway,
    ):
        forged = {"x-forwarded-for": "6.6.6.6", "x-forwarded-proto": "https"}
        reply = httpx.get(f"{gateway.url}/x", headers=forged)
        assert _seen_by(gateway, 1) == {"/x": HOST}
    assert seen(reply, "x-forwarded-for") == [f"6.6.6.6,{HOST}"]
    assert seen(reply, "x-forwarded-proto") == ["http"]


@pytest.mark.parametrize("is_trusting", [False, True])
def test_the_peers_of_a_socket_are_one_client_that_has_an_address(
    tmp_path: Path, *, is_trusting: bool
) -> None:
    port, socket = free_port(), str(tmp_path / "listen.sock")
    policy = _policy() if is_trusting else read_policy("version: 1\nrules: []\n")
    with (
        echoing() as upstream,
        Gateway(
            tmp_path,
            policy,
            NO_SERVICE,
            upstream=[upstream],
            listen=(Address(HOST, port), Address(path=socket), Address("::1", port)),
            access_log=str(tmp_path / "access.log"),
        ) as gateway,
        httpx.Client(transport=httpx.HTTPTransport(uds=socket)) as local,
    ):
        forged = {"x-forwarded-for": "6.6.6.6", "x-headgate-socket": "7.7.7.7"}
        forged |= {"x-headgate-peer": "8.8.8.8", "x-forwarded-proto": "https"}
        forged |= {"x-envoy-original-path": "/other", "x-envoy-decorator-operation": "x"}
        replies = [
            httpx.get(f"http://{HOST}:{port}/four", headers=forged),
            httpx.get(f"http://[::1]:{port}/six", headers=forged),
            local.get("http://gateway/socket", headers=forged),
        ]
        clients = _seen_by(gateway, 3)
    release_port(port)
    believed = "6.6.6.6" if is_trusting else HOST
    assert clients == {"/four": believed, "/six": "::1", "/socket": "0.0.0.0"}  # noqa: S104
    assert [seen(reply, "x-forwarded-for") for reply in replies] == [
        ["6.6.6.6,127.0.0.1"],
        ["6.6.6.6,::1"],
        ["6.6.6.6,0.0.0.0"],
    ]
    assert seen(replies[0], "x-forwarded-proto") == ["https" if is_trusting else "http"]
    assert seen(replies[1], "x-forwarded-proto") == ["http"]
    for name, _ in replies[2].json()["headers"]:
        assert "headgate" not in name
        assert "envoy" not in name
