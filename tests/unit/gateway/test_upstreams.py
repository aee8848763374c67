"""Where requests go: reading upstreams."""

from __future__ import annotations

import pytest

from headgate.config.gateway import Upstream, parse_upstream
from headgate.errors import OptionError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://localhost:9000", Upstream("localhost", 9000)),
        ("http://localhost/", Upstream("localhost", 80)),
        ("https://Example.com", Upstream("example.com", 443, is_tls=True)),
        ("http://[::1]:9000", Upstream("::1", 9000)),
        ("grpc://10.0.0.1:50051", Upstream("10.0.0.1", 50051, is_http2=True)),
        ("grpcs://a.org", Upstream("a.org", 443, is_tls=True, is_http2=True)),
        ("unix:/run/app.sock", Upstream(path="/run/app.sock")),
        ("unix:/run/a=b.sock", Upstream(path="/run/a=b.sock")),
        ("/shop=http://a:1", Upstream("a", 1, for_path="/shop")),
        ("/shop/=http://a:1", Upstream("a", 1, for_path="/shop")),
        ("/=http://a:1", Upstream("a", 1)),
        ("API.org=http://a:1", Upstream("a", 1, for_host="api.org")),
        ("*.api.org/v2/x=http://a:1", Upstream("a", 1, for_host="*.api.org", for_path="/v2/x")),
        ("[::1]=http://a:1", Upstream("a", 1, for_host="[::1]")),
        ("a.org=unix:/run/app.sock", Upstream(path="/run/app.sock", for_host="a.org")),
    ],
)
def test_an_upstream_is_read_with_the_requests_it_is_for(text: str, expected: Upstream) -> None:
    assert parse_upstream(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:9000",
        "ftp://a",
        "http://",
        "http://a:0",
        "http://a:99999",
        "http://a:x",
        "http://a b",
        "http://a/path",
        "http://a?x=1",
        "http://user@a",
        "unix:relative.sock",
        f"unix:/{'x' * 120}",
        "a.org:80=http://a",
        "*=http://a",
        "a.*.org=http://a",
        "a..org=http://a",
        "/a b=http://a",
        "/a?b=http://a",
        "/a//b=http://a",
        "/a/../b=http://a",
        "/a/.=http://a",
        "/a;x=http://a",
    ],
)
def test_what_is_no_upstream_is_refused_with_what_would_be_one(text: str) -> None:
    with pytest.raises(OptionError, match=r"expected|at most"):
        parse_upstream(text)


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost:9000",
        "https://[::1]:443",
        "grpc://a:80",
        "unix:/run/app.sock",
        "/shop=grpcs://a:443",
        "*.a.org=http://a:1",
        "a.org/x=unix:/run/app.sock",
    ],
)
def test_an_upstream_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_upstream(text)) == text


def test_an_upstream_is_one_server() -> None:
    with pytest.raises(OptionError):
        Upstream("a", 1, "/run/app.sock")
    with pytest.raises(OptionError):
        Upstream()
