"""Redis URLs say what they mean, and nonsense says what would be right, without the password."""

from __future__ import annotations

import pytest

from headgate.errors import StoreURLError
from headgate.server_urls import Address
from headgate.stores.redis.url import TLSFiles, parse_redis_url

SECRET = "hunter2"  # noqa: S105


class TestPlaces:
    @pytest.mark.parametrize(
        ("url", "address"),
        [
            ("redis://", Address("localhost", 6379)),
            ("redis:///3", Address("localhost", 6379)),
            ("redis://example", Address("example", 6379)),
            ("REDIS://example", Address("example", 6379)),
            ("valkey://example", Address("example", 6379)),
            ("redis://my_host-1.example.com:7000/0", Address("my_host-1.example.com", 7000)),
            ("redis://10.0.0.1:65535", Address("10.0.0.1", 65535)),
            ("redis://[::1]", Address("::1", 6379)),
            ("redis://[2001:DB8:0::1]:7000/", Address("2001:db8::1", 7000)),
            ("redis://[fe80::1%25eth0]:7000/", Address("fe80::1%eth0", 7000)),
            ("unix:///run/redis.sock", Address("/run/redis.sock", 0)),
            ("unix://u:p@/run/re%20dis%40.sock?db=2", Address("/run/re dis@.sock", 0)),
        ],
    )
    def test_one_server(self, url: str, address: Address) -> None:
        parsed = parse_redis_url(url)
        assert parsed.topology == "single"
        assert not parsed.is_cluster
        assert parsed.addresses == (address,)

    def test_several_sentinels(self) -> None:
        url = parse_redis_url("redis+sentinel://u:p@a,b:7,[::1]:8,[::2]/my%20master/4")
        assert url.topology == "sentinel"
        assert url.addresses == (
            Address("a", 26379),
            Address("b", 7),
            Address("::1", 8),
            Address("::2", 26379),
        )
        assert (url.primary_name, url.db) == ("my master", 4)

    def test_a_cluster(self) -> None:
        url = parse_redis_url("valkeys+cluster://a,b:7000")
        assert url.is_cluster
        assert url.addresses == (Address("a", 6379), Address("b", 7000))
        assert url.tls == TLSFiles()

    @pytest.mark.parametrize("scheme", ["rediss", "valkeys", "rediss+sentinel", "valkeys+cluster"])
    def test_an_s_means_tls(self, scheme: str) -> None:
        path = "/primary" if "sentinel" in scheme else ""
        assert parse_redis_url(f"{scheme}://a{path}").tls == TLSFiles()
        assert parse_redis_url("redis+cluster://a").tls is None

    def test_addresses_read_as_they_are_written(self) -> None:
        assert str(Address("a", 1)) == "a:1"
        assert str(Address("::1", 1)) == "[::1]:1"
        assert str(Address("/run/redis.sock", 0)) == "/run/redis.sock"


class TestCredentials:
    @pytest.mark.parametrize(
        ("before", "username", "password"),
        [
            ("", None, None),
            (":secret@", None, "secret"),
            ("user:secret@", "user", "secret"),
            ("user:@", "user", ""),
            ("us%3Aer:s%40c%2Fr%3Ae%25t@", "us:er", "s@c/r:e%t"),
            ("user:a:b@", "user", "a:b"),
            ("user:p%C3%A4ss@", "user", "päss"),
        ],
    )
    @pytest.mark.parametrize("rest", ["redis://{}host", "unix://{}/run/redis.sock"])
    def test_are_decoded(
        self, rest: str, before: str, username: str | None, password: str | None
    ) -> None:
        url = parse_redis_url(rest.format(before))
        assert (url.username, url.password) == (username, password)

    def test_are_not_in_its_repr(self) -> None:
        url = parse_redis_url(f"redis+sentinel://u:{SECRET}@a/p?sentinel_password={SECRET}")
        assert SECRET not in repr(url)
        assert SECRET not in str(url)


class TestDatabases:
    @pytest.mark.parametrize(
        ("url", "db"),
        [
            ("redis://a", 0),
            ("redis://a/", 0),
            ("redis://a/15", 15),
            ("redis://a?db=15", 15),
            ("redis+sentinel://a/p?db=15", 15),
            ("unix:///x?db=15", 15),
            ("redis+cluster://a/0", 0),
        ],
    )
    def test_are_in_the_path_or_an_option(self, url: str, db: int) -> None:
        assert parse_redis_url(url).db == db


class TestOptions:
    def test_have_defaults(self) -> None:
        url = parse_redis_url("redis://a")
        assert (url.timeout, url.connections) == (0.05, 2)

    def test_are_read(self) -> None:
        url = "redis+sentinel://a/p?timeout=.25&connections=8"
        read = parse_redis_url(f"{url}&sentinel_username=s%26&sentinel_password=t%40")
        assert (read.timeout, read.connections) == (0.25, 8)
        assert (read.sentinel_username, read.sentinel_password) == ("s&", "t@")

    def test_of_tls(self) -> None:
        files = "ssl_ca_certs=/ca&ssl_certfile=/crt&ssl_keyfile=/key&ssl_check_hostname=no"
        assert parse_redis_url(f"rediss://a?{files}").tls == TLSFiles(
            "/ca", "/crt", "/key", "required", check_hostname=False
        )
        none = parse_redis_url("rediss://a?ssl_cert_reqs=none").tls
        assert none == TLSFiles(cert_reqs="none", check_hostname=False)


NONSENSE = [
    ("", "expected redis://"),
    ("redis", "expected redis://"),
    ("redis:/a", "expected redis://"),
    ("http://a", "expected redis://"),
    ("rediss+unix://a", "expected redis://"),
    ("unixs:///a", "expected redis://"),
    (f"redos://user:{SECRET}", "expected redis://"),
    ("redis://a,b", "redis\\+sentinel:// and redis\\+cluster://"),
    ("redis://a:0", "no port from 1 to 65535"),
    ("redis://a:65536", "no port"),
    ("redis://a:", "no port"),
    (f"redis://user:{SECRET}", "user:password@host:port"),
    ("redis://[::1", "an IPv6 address as"),
    ("redis://[::1]x", "an IPv6 address as"),
    ("redis://[localhost]", "an IPv6 address as"),
    ("redis://::1", "no host's name"),
    ("redis://a b", "no host's name"),
    ("redis+cluster://", "a host is missing"),
    ("redis+cluster://a,,b", "a host is missing"),
    ("redis+cluster://a,a:6379", "named twice"),
    ("redis+cluster://a/1", "no database but 0"),
    ("redis+cluster://a?db=1", "no database but 0"),
    ("redis+sentinel://a", "name that the Sentinels know"),
    ("redis+sentinel://a/p/0/1", "path too long"),
    ("redis://a/0/1", "path too long"),
    ("redis://a/zero", "expected a number such as 0"),
    ("redis://a/-1", "expected a number such as 0"),
    ("redis://a/1?db=1", "given twice"),
    ("redis://a?db=1&db=1", "given twice"),
    ("redis://a?db=", "db is ''; expected a number"),
    ("redis://a?timeout", "name=value"),
    ("redis://a?x=%ff", "name=value"),
    ("redis://a#x", "write it %23"),
    ("redis://a\n", "cannot be printed"),
    (f"redis://u:{SECRET}/x@a", "%2F, %3F and %23"),
    (f"redis://u:{SECRET}?x@a", "%2F, %3F and %23"),
    (f"redis://u:{SECRET}#x@a", "%2F, %3F and %23"),
    (f"redis://u:{SECRET}@x@a", "two '@'"),
    (f"redis://u:{SECRET}%@a", "write a '%' in it as %25"),
    (f"redis://u:{SECRET}%ff@a", "not percent-encoded UTF-8"),
    (f"redis://{SECRET}@a", ":password without a user"),
    ("redis://:@a", ":password without a user"),
    ("redis://@a", ":password without a user"),
    ("unix://", "path is missing"),
    ("unix://run/redis.sock", "begins with a '/'"),
    (f"unix://u:{SECRET}@run/redis.sock", "begins with a '/'"),
    (f"redis://a?password={SECRET}", "unknown option 'password'; known: connections, db"),
    ("redis://a?socket_timeout=1", "unknown option"),
    ("redis://a?ssl_ca_certs=/ca", "did you mean rediss://"),
    ("redis://a?sentinel_password=x", "for redis\\+sentinel://"),
    ("redis+sentinel://a/p?sentinel_username=x", "needs a sentinel_password"),
    ("rediss://a?ssl_keyfile=/key", "needs an ssl_certfile"),
    ("rediss://a?ssl_cert_reqs=maybe", "none or optional or required"),
    ("rediss://a?ssl_cert_reqs=none&ssl_check_hostname=true", "looks at no certificate"),
    ("rediss://a?ssl_cert_reqs=none&ssl_ca_certs=/ca", "looks at no certificate"),
    ("rediss://a?ssl_check_hostname=maybe", "true or false"),
    *(
        (f"redis://a?timeout={text}", "seconds above 0")
        for text in ("0", "-1", "601", "nan", "1e1")
    ),
    *((f"redis://a?connections={text}", "1 to 9999") for text in ("0", "-1", "1.5", "10000")),
]


@pytest.mark.parametrize(("url", "hint"), NONSENSE)
def test_nonsense_says_what_would_be_right(url: str, hint: str) -> None:
    with pytest.raises(StoreURLError, match=hint) as caught:
        parse_redis_url(url)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)
