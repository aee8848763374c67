"""The URL of a policy in etcd: what it says, and what is said when it makes no sense."""

from __future__ import annotations

import pytest

from headgate.control.etcd.url import TLSFiles, parse_etcd_url
from headgate.errors import OptionError
from headgate.server_urls import Address


class TestWhatItSays:
    def test_a_host_is_enough(self) -> None:
        url = parse_etcd_url("etcd://etcd.internal")
        assert url.addresses == (Address("etcd.internal", 2379),)
        assert (url.prefix, url.user, url.password, url.tls) == ("/headgate/", None, None, None)
        assert (url.timeout, url.heartbeat, url.history) == (5.0, 1.0, 100)
        assert url.max_request_bytes == 1_572_864

    def test_everything(self) -> None:
        url = parse_etcd_url(
            "etcds://ada:p%40ss@one:1,two,[::1]:3/teams/a/?ca=/ca.pem&cert=/c.pem&key=/k.pem"
            "&server_name=etcd.test&timeout=2.5&heartbeat=.5&history=7&max_request_bytes=4194304"
        )
        assert url.addresses == (Address("one", 1), Address("two", 2379), Address("::1", 3))
        assert (url.prefix, url.user, url.password) == ("/teams/a/", "ada", "p@ss")
        assert url.tls == TLSFiles("/ca.pem", "/c.pem", "/k.pem", "etcd.test")
        assert (url.timeout, url.heartbeat, url.history) == (2.5, 0.5, 7)
        assert url.max_request_bytes == 4_194_304

    @pytest.mark.parametrize("path", ["", "/"])
    def test_without_a_prefix_it_is_headgate(self, path: str) -> None:
        assert parse_etcd_url(f"etcd://host{path}").prefix == "/headgate/"

    @pytest.mark.parametrize("path", ["/teams/a", "/teams/a/", "/teams%2Fa"])
    def test_a_prefix_begins_and_ends_with_a_slash(self, path: str) -> None:
        assert parse_etcd_url(f"etcd://host{path}").prefix == "/teams/a/"

    def test_tls_can_be_asked_for_in_two_ways(self) -> None:
        assert parse_etcd_url("etcd://host?tls=true") == parse_etcd_url("ETCDS://host")
        assert parse_etcd_url("etcd://host?tls=false").tls is None

    def test_as_text_it_has_no_password(self) -> None:
        url = parse_etcd_url("etcds://ada:secret@one,[::1]:3/a")
        assert str(url) == "etcds://one:2379,[::1]:3/a/"
        assert "secret" not in repr(url)


class TestPassword:
    def test_the_url_comes_first_then_the_argument_then_the_environment(self) -> None:
        environ = {"HEADGATE_ETCD_PASSWORD": "third"}

        def found(url: str, password: str | None) -> str | None:
            return parse_etcd_url(url, password=password, environ=environ).password

        assert found("etcd://ada:first@host", "second") == "first"
        assert found("etcd://ada@host", "second") == "second"
        assert found("etcd://ada@host", None) == "third"
        assert found("etcd://host", None) is None

    def test_a_user_without_one_is_told_where_to_put_it(self) -> None:
        with pytest.raises(OptionError, match="set HEADGATE_ETCD_PASSWORD"):
            parse_etcd_url("etcd://ada@host")

    def test_one_without_a_user_is_an_error(self) -> None:
        with pytest.raises(OptionError, match="a password but no user"):
            parse_etcd_url("etcd://host", password="secret")  # noqa: S106


NONSENSE = {
    "host:2379": "a URL without '://'",
    "redis://host": "expected etcd://host:2379",
    "etcd://": "a host is missing",
    "etcd://one,,two": "a host is missing",
    "etcd://one,one:2379": "named twice",
    "etcd://host:0": "no port from 1 to 65535",
    "etcd://host:65536": "no port from 1 to 65535",
    "etcd://user:xyzzy": "no port from 1 to 65535",
    "etcd://::1": "no host's name",
    "etcd://[::1": "expected an IPv6 address",
    "etcd://[::g]": "expected an IPv6 address",
    "etcd://:xyzzy@host": "expected user:password or user before",
    "etcd://user:@host": "the password is empty",
    "etcd://user:xy@zzy@host": "two '@'",
    "etcd://user:xy/zzy@host": "there is an '@' after a '/'",
    "etcd://user:xy#zzy": "'#' has no meaning",
    "etcd://user:xy%zzzzy@host": "not percent-encoded",
    "etcd://user:xy%ffzzy@host": "not percent-encoded",
    "etcd://host/a\nb": "cannot be printed",
    "etcd://host/a//b": "two slashes in a row",
    "etcd://host?timeout": "name=value",
    "etcd://host?timeout=": "timeout is ''; expected seconds",
    "etcd://host?timeout=0": "timeout is '0'",
    "etcd://host?timeout=inf": "timeout is 'inf'",
    "etcd://host?timeout=601": "timeout is '601'",
    "etcd://host?heartbeat=-1": "heartbeat is '-1'",
    "etcd://host?history=0": "history is '0';",
    "etcd://host?history=many": "history is 'many'",
    "etcd://host?history=100001": "history is '100001'",
    "etcd://host?max_request_bytes=1": "max_request_bytes is '1';",
    "etcd://host?timeout=1&timeout=2": "given twice",
    "etcd://host?colour=red": "unknown option 'colour'; known: ca, cert, heartbeat, history",
    "etcd://host?ca=/ca.pem": "ca is for TLS; did you mean etcds://",
    "etcd://host?tls=yes": "expected true or false",
    "etcds://host?tls=false": "remove tls=false",
    "etcds://host?cert=/c.pem": "belong together",
    "etcds://host?key=/k.pem": "belong together",
    "etcds://host?ca=": "ca is ''; expected a value",
    "etcd://host?heartbeat=nan": "heartbeat is 'nan'",
}


@pytest.mark.parametrize(("url", "problem"), NONSENSE.items())
def test_what_makes_no_sense_is_said_without_the_password(url: str, problem: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_etcd_url(url)
    assert problem in str(caught.value)
    assert not any(part in str(caught.value) for part in ("xy", "zzy"))
