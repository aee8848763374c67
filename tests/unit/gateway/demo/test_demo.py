"""The demo: rules that are good, an upstream that answers, and an introduction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headgate.gateway.demo import DemoUpstream, dashboard_link, demo_rules, introduction
from headgate.policy.loader import examine_policy

if TYPE_CHECKING:
    from pathlib import Path


def test_the_rules_are_good_and_show_all_ways_to_decide() -> None:
    examined = examine_policy(demo_rules())
    assert examined.problems == ()
    assert examined.policy is not None
    assert {rule.decide for rule in examined.policy.rules} == {None, "quota", "local"}


def test_the_introduction_has_all_addresses_and_three_lines() -> None:
    told = introduction(
        gateway="http://127.0.0.1:8080",
        service="http://127.0.0.1:8090",
        token="t0ken",  # noqa: S106 - not one
        rules="/tmp/run/rules.yaml",  # noqa: S108 - not used
        is_temporary=True,
    )
    assert "(temporary: removed at the end)" in told
    link = "http://127.0.0.1:8090/#token=t0ken"
    for part in ("http://127.0.0.1:8080", link, "t0ken ", "/tmp/run/rules.yaml"):  # noqa: S108
        assert part in told
    assert told.count("     curl ") == 3
    assert max(map(len, told.splitlines())) < 300


def test_a_token_that_was_not_made_here_is_in_no_link() -> None:
    told = introduction(
        gateway="http://g", service="http://s", token=None, rules="r", is_temporary=False
    )
    assert "kept in --run-dir" in told
    assert "dashboard    http://s/   (" in told
    assert "Bearer TOKEN'" in told
    assert dashboard_link("http://s", "a/b#c") == "http://s/#token=a%2Fb%23c"


def test_a_service_at_a_socket_has_no_link_for_a_browser() -> None:
    assert dashboard_link("unix:/run/headgate.sock", "t0ken") == "unix:/run/headgate.sock"


def _answers(path: Path, *requests: bytes) -> list[bytes]:
    """What the upstream says to *requests*, all on one connection."""

    async def main() -> bytes:
        upstream = DemoUpstream(str(path))
        await upstream.start()
        try:
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(b"".join(requests))
            writer.write_eof()
            answers = await reader.read()
            writer.close()
            return answers
        finally:
            await upstream.aclose()

    return asyncio.run(main()).split(b"HTTP/1.1 ")[1:]


def _get(path: str, method: str = "GET", more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nhost: x\r\n{more}\r\n".encode()


def test_every_page_answers_and_one_says_what_it_has_cost(tmp_path: Path) -> None:
    posted = _get("/login", "POST", "content-length: 3\r\n") + b"abc"
    chunked = _get("/login", "POST", "transfer-encoding: chunked\r\n") + b"3\r\nabc\r\n0\r\n\r\n"
    asked = [_get("/"), _get("/api/hello?x=1"), posted, chunked, _get("/login"), _get("/chat")]
    found = _answers(tmp_path / "a.sock", *asked, _get("/report", "HEAD"), _get("/none"))
    statuses = [int(answer[:3]) for answer in found]
    assert statuses == [200, 200, 401, 401, 405, 200, 200, 404]
    assert b"x-tokens: 425\r\n" in found[5]
    assert found[6].endswith(b"\r\n\r\n")


def test_what_is_no_request_ends_the_connection(tmp_path: Path) -> None:
    [answer] = _answers(tmp_path / "a.sock", b"nonsense\r\n\r\n")
    assert answer.startswith(b"400 ")
    assert b"connection: close" in answer
