"""What may be asked for, and what is refused because it could break out of its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.config.gateway import Upstream
from headgate.errors import OptionError
from headgate.gateway.templates import GATEWAYS, TemplateOptions, template_options
from headgate.gateway.templates.options import Report
from headgate.policy.loader import read_policy

NASTY = [*"\"';{}#$`,:][@%&*?\\<>| \n\r\t\0\x1b\x7fé", "\u2028", "{{", "<<x>>", "%20", "=b"]


@pytest.mark.parametrize("mark", NASTY)
@pytest.mark.parametrize(
    "make",
    [
        lambda mark: {"server_name": f"a{mark}b"},
        lambda mark: {"server_name": f"{mark}b.example"},
        lambda mark: {"upstream": f"http://a{mark}b"},
        lambda mark: {"upstream": f"http://a{mark}b:80"},
        lambda mark: {"service": f"http://a{mark}b:80"},
        lambda mark: {"upstream": f"unix:/run/a{mark}b"},
        lambda mark: {"service": f"unix:/run/a{mark}b"},
        lambda mark: {"grpc": f"unix:/run/a{mark}b"},
        lambda mark: {"grpc": f"a{mark}b:8091"},
        lambda mark: {"listen": f"a{mark}b:8080"},
    ],
)
def test_what_means_something_in_a_syntax_reaches_no_text(make: Any, mark: str) -> None:
    with pytest.raises(OptionError):
        template_options(**make(mark))


@given(st.text(min_size=1, max_size=30))
def test_a_server_name_has_only_what_names_of_hosts_have(name: str) -> None:
    try:
        wanted = TemplateOptions(server_name=name)
    except OptionError:
        return
    for gateway in GATEWAYS:
        if "server_name" not in gateway.excluded:
            lines = len(gateway.text(TemplateOptions(server_name="a")).splitlines())
            assert len(gateway.text(wanted).splitlines()) == lines
    assert all(one.isascii() and (one.isalnum() or one in "._-*") for one in name)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"upstream": "/shop=http://a"}, "is not the URL"),
        ({"service": "http://a/v1"}, "is not the URL"),
        ({"service": "ftp://a"}, "is not the URL"),
        ({"listen": "unix:/run/x"}, "expected HOST:PORT"),
        ({"listen": "127.0.0.1:0"}, "expected HOST:PORT"),
        ({"grpc": "127.0.0.1:0"}, "expected HOST:PORT"),
        ({"grpc": "127.0.0.1"}, "not an address"),
        ({"server_name": "*.*.example"}, "xn--"),
        ({"server_name": ""}, "xn--"),
        ({"upstream": "http://[fe80::1%25eth0]:80"}, "is not the URL"),
        ({"upstream": "http://a-.example"}, "not a host"),
        ({"upstream": "grpc://a:80"}, "is for gRPC"),
        ({"listen": "[fe80::1%eth0]:80"}, "not a host"),
        ({"timeout": 0.0}, "seconds"),
        ({"timeout": float("nan")}, "seconds"),
        ({"timeout": 61.0}, "seconds"),
    ],
)
def test_nonsense_is_refused_with_what_would_be_right(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told.replace("*", r"\*")):
        template_options(**wrong)


def test_no_password_is_repeated() -> None:
    with pytest.raises(OptionError, match="is not the URL") as refused:
        template_options(upstream="http://ada:sesame@host")
    assert "sesame" not in str(refused.value)


def test_one_upstream_is_for_everything() -> None:
    with pytest.raises(OptionError, match="expected one URL"):
        TemplateOptions(upstream=Upstream(host="a", port=80, for_path="/shop"))


def test_a_header_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match="not the name of a header"):
        TemplateOptions(headers=('x"; }',))


def test_the_headers_are_those_that_the_rules_look_at() -> None:
    text = """
version: 1
identity: {user_id: {header: X-Account}, tier: {cookie: plan}}
rules:
  - {id: a, match: {headers: {x-beta: "1"}}, key_by: [user_id, "header:x-device"], limit: 1/s}
"""
    told = template_options(policy=read_policy(text)).sent_headers
    assert told == ("cookie", "x-account", "x-api-key", "x-beta", "x-device", "x-tenant-id")


def test_that_of_proxies_is_told_only_where_some_are_believed() -> None:
    text = """
version: 1
identity: {ip: {trusted_proxies: [10.0.0.0/8]}}
rules: [{id: a, key_by: ip, limit: 1/s}]
"""
    assert "x-forwarded-for" in template_options(policy=read_policy(text)).sent_headers
    other = text.replace("identity: {ip: {trusted_proxies: [10.0.0.0/8]}}", "")
    assert "x-forwarded-for" not in template_options(policy=read_policy(other)).sent_headers


def test_without_rules_the_usual_headers_are_told() -> None:
    assert TemplateOptions().sent_headers == ("x-api-key", "x-user-id", "x-tenant-id", "x-tier")
    assert replace(TemplateOptions(), headers=("x-a",)).sent_headers == ("x-a",)


def test_rules_whose_costs_are_known_afterwards_are_reported_to() -> None:
    text = """
version: 1
rules:
  - {id: a, key_by: ip, limit: 1/s, cost: {after: {header: x-tokens}}}
  - {id: b, key_by: ip, limit: 1/s, cost: {after: {bytes: true}}}
  - {id: c, key_by: ip, limit: 9/s, cost: {default: 2}}
  - {id: d, key_by: ip, limit: 1/s, mode: "off", cost: {after: {bytes: true}}}
"""
    reports = template_options(policy=read_policy(text)).reports
    assert reports == (Report("a", "x-tokens"), Report("b"))


@pytest.mark.parametrize(("rule", "header"), [("a", "x)%"), ("a", "x%y"), ('a"', None), ("", None)])
def test_what_could_end_a_format_is_refused(rule: str, header: str | None) -> None:
    with pytest.raises(OptionError):
        Report(rule, header)
