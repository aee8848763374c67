"""Everything that Envoy reads, as a whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headgate.config import Address
from headgate.config.gateway import GatewaySettings, parse_upstream
from headgate.errors import OptionError
from headgate.gateway.envoy.clusters import MOST_DISCOVERED
from headgate.gateway.envoy.documents import documents
from headgate.gateway.envoy.values import Places
from headgate.policy.loader import read_policy
from headgate.policy.model import Policy

_PLACES = Places("/run/gateway", ("/run/gateway/grpc.sock",), "/run/gateway/admin.sock")
_LIMITED = read_policy("version: 1\nrules: [{id: a, key_by: ip, limit: 5/hour}]\n")
_TLS = {"listen_tls_cert": "/tls/a.crt", "listen_tls_key": "/tls/a.key"}


def _settings(**changed: Any) -> GatewaySettings:
    return GatewaySettings(upstream=(parse_upstream("http://127.0.0.1:9000"),), **changed)


def _listener(made: Any) -> Any:
    [listener] = made.discovered["listeners.json"]["resources"]
    return listener


def _manager(made: Any) -> Any:
    [chain] = _listener(made)["filter_chains"]
    return chain["filters"][0]["typed_config"]


def test_files_stand_in_the_order_in_which_they_are_to_be_written() -> None:
    settings = _settings(**_TLS, listen_tls_client_ca="/tls/ca.crt")
    names = list(documents(_LIMITED, settings, _PLACES).discovered)
    assert names[-1] == "listeners.json"
    assert [name for name in names if name.startswith("filter-")]
    assert names[-3:-1] == ["secret-certificate.json", "secret-client-ca.json"]


def test_whatever_is_discovered_has_its_file_in_the_directory() -> None:
    made = documents(_LIMITED, _settings(**_TLS), _PLACES)
    text = json.dumps([made.bootstrap, dict(made.discovered)])
    for name in made.discovered:
        assert f'"{_PLACES.directory}/{name}"' in text


def test_what_would_be_discovered_stands_in_its_place() -> None:
    made = documents(_LIMITED, _settings(), _PLACES)
    resources = made.whole["static_resources"]
    assert "dynamic_resources" not in made.whole
    assert resources["clusters"] == made.bootstrap["static_resources"]["clusters"]
    [listener] = resources["listeners"]
    [chain] = listener["filter_chains"]
    inline = {one["name"]: one for one in chain["filters"][0]["typed_config"]["http_filters"]}
    discovered = [
        document["resources"][0]
        for name, document in made.discovered.items()
        if name.startswith("filter-")
    ]
    assert discovered
    for one in discovered:
        expected = {"name": one["name"], "typed_config": one["typed_config"]}
        assert inline[one["name"]] == expected
    assert "config_discovery" not in json.dumps(listener)


def test_the_same_policy_makes_the_same_documents_and_another_one_another_version() -> None:
    first, again = (documents(_LIMITED, _settings(), _PLACES) for _ in range(2))
    assert first == again
    other = documents(Policy(), _settings(), _PLACES)
    versions = [made.discovered["listeners.json"]["version_info"] for made in (first, other)]
    assert versions[0] != versions[1]


def test_a_change_within_a_filter_leaves_the_listener_as_it_is() -> None:
    rule = "{id: a, key_by: ip, decide: local, limit: %s}"
    policies = [read_policy(f"version: 1\nrules: [{rule % limit}]\n") for limit in ("5/h", "9/h")]
    first, second = (documents(policy, _settings(), _PLACES) for policy in policies)
    assert first.discovered["listeners.json"] == second.discovered["listeners.json"]
    assert first.discovered != second.discovered


def test_filters_are_discovered_without_a_default_before_the_router() -> None:
    *filters, router = _manager(documents(_LIMITED, _settings(), _PLACES))["http_filters"]
    assert router["name"] == "envoy.filters.http.router"
    assert filters
    for one in filters:
        assert set(one) == {"name", "config_discovery"}
        assert set(one["config_discovery"]) == {"config_source", "type_urls"}


def test_of_very_many_filters_none_has_a_file_of_its_own() -> None:
    """Envoy would run out of what it watches files with."""
    rule = "{id: r%s, key_by: ip, decide: local, limit: 5/h}"
    rules = ", ".join(rule % number for number in range(MOST_DISCOVERED + 1))
    made = documents(read_policy(f"version: 1\nrules: [{rules}]\n"), _settings(), _PLACES)
    assert list(made.discovered) == ["listeners.json"]
    *filters, _router = _manager(made)["http_filters"]
    assert len(filters) > MOST_DISCOVERED
    assert all(one["typed_config"]["@type"] for one in filters)


def test_all_addresses_are_one_listener() -> None:
    addresses = Address("127.0.0.1", 1), Address("::1", 2), Address(path="/run/l.sock")
    listener = _listener(documents(Policy(), _settings(listen=addresses), _PLACES))
    assert listener["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": 1}
    assert [one["address"] for one in listener["additional_addresses"]] == [
        {"socket_address": {"address": "::1", "port_value": 2}},
        {"pipe": {"path": "/run/l.sock"}},
    ]


def test_a_name_to_listen_on_is_refused_but_for_localhost() -> None:
    made = documents(Policy(), _settings(listen=(Address("localhost", 1),)), _PLACES)
    assert _listener(made)["address"]["socket_address"]["address"] == "127.0.0.1"
    with pytest.raises(OptionError, match=r"listen: example\.org"):
        documents(Policy(), _settings(listen=(Address("example.org", 1),)), _PLACES)


def test_the_admin_page_is_for_its_owner_alone() -> None:
    made = documents(Policy(), _settings(), _PLACES)
    assert made.bootstrap["admin"]["address"] == {
        "pipe": {"path": "/run/gateway/admin.sock", "mode": 0o600}
    }
    places = Places("/run/gateway", ("127.0.0.1:8091",), "127.0.0.1:9901")
    made = documents(Policy(), _settings(), places)
    assert made.bootstrap["admin"]["address"]["socket_address"]["port_value"] == 9901


def test_the_bounds_for_clients_are_those_of_the_settings() -> None:
    settings = _settings(
        client_header_timeout=2.5,
        client_idle_timeout=60.0,
        client_stream_idle_timeout=0.0,
        client_max_header=9000,
        client_max_streams=7,
        client_max_connections=11,
    )
    made = documents(Policy(), settings, _PLACES)
    manager = _manager(made)
    assert manager["request_headers_timeout"] == "2.5s"
    assert manager["common_http_protocol_options"]["idle_timeout"] == "60s"
    assert manager["stream_idle_timeout"] == "0s"
    assert manager["max_request_headers_kb"] == 9
    assert manager["http2_protocol_options"]["max_concurrent_streams"] == 7
    [monitor] = made.bootstrap["overload_manager"]["resource_monitors"]
    assert monitor["typed_config"]["max_active_downstream_connections"] == 11


def test_a_certificate_is_watched_where_it_lies() -> None:
    made = documents(Policy(), _settings(**_TLS), _PLACES)
    [secret] = made.discovered["secret-certificate.json"]["resources"]
    assert secret["tls_certificate"]["watched_directory"] == {"path": "/tls"}
    apart = {"listen_tls_cert": "/tls/a.crt", "listen_tls_key": "/keys/a.key"}
    made = documents(Policy(), _settings(**apart), _PLACES)
    [secret] = made.discovered["secret-certificate.json"]["resources"]
    assert "watched_directory" not in secret["tls_certificate"]


def test_headers_of_upstreams_are_kept_where_the_service_tells_nothing() -> None:
    def removed(rule: str) -> list[str]:
        policy = read_policy(f"version: 1\nrules: [{rule}]\n")
        routes = _manager(documents(policy, _settings(), _PLACES))["route_config"]
        [host] = routes["virtual_hosts"]
        found: list[str] = host["routes"][-1]["response_headers_to_remove"]
        return found

    rule = "{id: a, key_by: ip, limit: 5/hour"
    assert "X-RateLimit-Limit" in removed(rule + "}")
    assert removed(rule + ", headers: 'off'}") == []
    assert removed("") == []


@pytest.mark.parametrize(("log", "name"), [("-", "stdout"), ("/var/log/a", "file")])
def test_an_access_log_is_written_if_asked_for(log: str, name: str) -> None:
    [found] = _manager(documents(Policy(), _settings(access_log=log), _PLACES))["access_log"]
    assert found["name"] == f"envoy.access_loggers.{name}"
    assert _manager(documents(Policy(), _settings(), _PLACES))["access_log"] == []
