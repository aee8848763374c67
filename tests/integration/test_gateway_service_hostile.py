"""Nothing that a client sends makes the gateway's question fail, which would let it pass."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.gateway_service import Service, exact, gateway, quota, request, said, status_of
from tests.support.http2_frames import DATA, END_HEADERS, END_STREAM, Peer, asking, opening
from tests.support.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

RULES = """
version: 1
rules:
  - {id: per-key, key_by: api_key, limit: 1/hour}
  - {id: per-path, match: {endpoint: /odd/**}, key_by: [ip, endpoint], limit: 1/hour}
  - {id: by-key, match: {headers: {x-quota: "1"}}, key_by: "header:x-quota-key", limit: 20/s}
"""
BYTES = (0, 1, 8, 9, 10, 11, 13, 27, 31, 32, 127, 128, 192, 233, 255)


def _requests() -> Iterator[tuple[str, bytes]]:
    for byte in BYTES:
        odd = bytes([byte])
        yield f"byte {byte} in a header", request(key=b"a" + odd + b"b")
        yield f"byte {byte} in the path", request(b"path-%d" % byte, path=b"/odd/" + odd)
        yield f"byte {byte} in the host", request(b"host-%d" % byte, host=b"h" + odd)
        yield f"byte {byte} in the method", request(b"method-%d" % byte, method=b"G" + odd)
    for size in (0, 1, 1_000, 16_385, 60_000, 97_000, 99_000):
        yield f"a header of {size} bytes", request(key=b"k" * size)
        yield f"a path of {size} bytes", request(b"long-%d" % size, path=b"/" + b"p" * size)
    yield "UTF-8", request("café".encode())
    yield "the same in Latin-1", request("café".encode("latin-1"))
    yield "UTF-8 that is cut off", request(b"caf\xc3")
    yield "half of a surrogate pair", request(b"\xed\xa0\x80")
    yield "odd bytes that are percent-encoded", request(b"percent", path=b"/odd/%ff%00%c1%ac")
    yield "two lines of one header", request(b"two", more=b"x-api-key: \xff\r\n")
    yield "no host", request(b"no-host", host=b"")
    yield "a target of another form", request(b"target", path=b"http://h/odd")
    yield "all of it", request(b"\xff" * 30_000, path=b"/odd/" + b"%ff" * 10_000, host=b"h:80")


def test_no_request_passes_twice_where_one_may_and_no_call_fails() -> None:
    headers = [f"x-of-interest-{n}" for n in range(90)]  # Envoy takes 100 in all
    lines = b"".join(b"%b: \xff%b\r\n" % (name.encode(), b"v" * 40) for name in headers)
    tried = dict([*_requests(), ("95 entries", request(b"many", more=lines))])
    with Service(RULES) as service, gateway(service, exact("x-api-key", *headers)) as (port, envoy):

        def statuses(message: bytes) -> tuple[int, int]:
            return status_of(said(port, message)), status_of(said(port, message))

        with ThreadPoolExecutor(24) as pool:
            answers = dict(zip(tried, pool.map(statuses, tried.values()), strict=True))
        told = envoy.stats("cluster.upstream.ratelimit")
    assert {what: got for what, got in answers.items() if 200 in got[1:]} == {}
    assert answers["byte 255 in a header"] == answers["95 entries"] == (200, 429)
    # Rules do not examine such paths.
    assert answers["a path of 60000 bytes"] == answers["all of it"] == (429, 429)
    # These are more than Python's server takes, but Envoy does, and asks.
    assert answers["a header of 97000 bytes"] == (431, 429)
    assert answers["a path of 97000 bytes"] == (429, 429)
    assert told.get("cluster.upstream.ratelimit.error", 0) == 0
    assert told.get("cluster.upstream.ratelimit.failure_mode_allowed", 0) == 0
    assert told["cluster.upstream.ratelimit.over_limit"] > 20


@pytest.mark.parametrize("path", [b"/odd/\xff", b"/odd/\x80?\xff", "/odd/é".encode()])
def test_paths_of_http2_that_are_no_ascii_are_limited(path: bytes) -> None:
    """Envoy refuses them in HTTP/1.1, and takes them in HTTP/2."""

    async def bodies(port: int) -> list[bytes]:
        peer = await Peer.connect(port)
        found = []
        for stream in (1, 3):
            name = b"of-http2-%d" % stream
            fields = asking(path, method=b"GET", content_type=None, te=None, x_api_key=name)
            whole = END_STREAM | END_HEADERS
            peer.send(opening(stream, fields, whole))
            found.append((await peer.until(DATA, stream)).payload)
        await peer.close()
        return found

    with Service(RULES) as service, gateway(service, exact("x-api-key")) as (port, _):
        passed, refused = asyncio.run(bodies(port))
    assert passed == b"xx"
    assert json.loads(refused)["limit"] == "per-path"


def test_a_caller_with_an_odd_name_does_not_end_the_quotas_of_others() -> None:
    chosen = quota("by-key", "x-quota-key")
    with Service(RULES) as service, gateway(service, chosen) as (port, envoy):

        def status(key: bytes) -> int:
            return status_of(said(port, request(more=b"x-quota-key: %b\r\n" % key)))

        def is_passing(key: bytes) -> bool:
            return status(key) == 200

        wait_until(lambda: is_passing(b"ada"), "Ada has a share")
        for odd in (b"\xff", b"caf\xe9", b"k" * 50_000, b"\xff" * 9_000):
            assert status(odd) == 429, "who has no share is denied here"
        for name in (b"bob", b"eve"):
            wait_until(partial(is_passing, name), "others get theirs")
        time.sleep(6)  # until Envoy has reported all of them once more
        assert status(b"ada") == 200
        wait_until(lambda: is_passing(b"joe"), "so do those who come later")
        assert envoy.stats("cluster.headgate.upstream_rq_total").popitem()[1] == 1, "one stream"


def test_a_bucket_is_on_the_terms_of_the_rule_that_it_names() -> None:
    with Service(RULES) as service, gateway(service, quota("gone", "x-api-key")) as (port, _):
        wait_until(lambda: status_of(said(port, request())) == 200, "no rule, no limit")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            many = [client.get("/", headers={"x-api-key": "ada"}).status_code for _ in range(50)]
    assert many == [200] * 50
    with Service(RULES) as service, gateway(service, quota("per-key", "x-api-key")) as (port, _):
        wait_until(lambda: status_of(said(port, request())) == 200, "one may pass")
        assert [status_of(said(port, request())) for _ in range(5)] == [429] * 5
