"""Settings from a file, variables and flags: what wins, and what is told of mistakes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from headgate.config import Address, SettingsError
from headgate.config.service import Settings, gather
from headgate.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from headgate.config.service import Gathered

TOKEN = "correct-horse-battery"  # noqa: S105 - nobody's
RULES = {"HEADGATE_RULES": "rules.yaml"}


class Desk:
    """Where a configuration is written down."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def file(self, text: str, name: str = "headgate.yaml") -> str:
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def gathered(
        self,
        text: str | None = None,
        *,
        variables: Mapping[str, str] = RULES,
        flags: Mapping[str, str | Sequence[str] | None] | None = None,
    ) -> Gathered:
        config = None if text is None else self.file(text)
        return gather(flags=flags or {}, variables=variables, config=config)

    def refused(
        self,
        text: str | None = None,
        *,
        variables: Mapping[str, str] = RULES,
        flags: Mapping[str, str | Sequence[str] | None] | None = None,
    ) -> list[str]:
        with pytest.raises(SettingsError) as caught:
            self.gathered(text, variables=variables, flags=flags)
        return str(caught.value).replace(f"{self.directory}/", "").splitlines()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


class TestPrecedence:
    def test_a_flag_wins_over_a_variable_over_the_file_over_the_default(self, desk: Desk) -> None:
        text = "rules: file.yaml\nnamespace: of-file\nmax_body: 2000\nlog_level: debug"
        variables = {"HEADGATE_NAMESPACE": "of-variable", "HEADGATE_MAX_BODY": "3000"}
        got = desk.gathered(text, variables=variables, flags={"max_body": "4000"}).settings
        assert (got.rules, got.log_level, got.namespace, got.max_body, got.workers) == (
            "file.yaml",
            "debug",
            "of-variable",
            4000,
            1,
        )

    def test_an_empty_variable_is_one_that_is_not_set(self, desk: Desk) -> None:
        variables = {**RULES, "HEADGATE_WORKERS": "", "HEADGATE_STORE": ""}
        got = desk.gathered(variables=variables).settings
        assert (got.workers, got.store) == (1, "memory://")

    def test_a_variable_names_the_file_if_no_flag_does(self, desk: Desk) -> None:
        path = desk.file("rules: a.yaml")
        other = desk.file("rules: b.yaml", "other.yaml")
        named = {"HEADGATE_CONFIG": path}
        assert gather(flags={}, variables=named).settings.rules == "a.yaml"
        assert gather(flags={}, variables=named, config=other).settings.rules == "b.yaml"

    def test_json_is_read_as_well(self, desk: Desk) -> None:
        text = '{"rules": "a.yaml", "http": ["127.0.0.1:1", "unix:/run/h.sock"], "drain": 2.5}'
        got = desk.gathered(text, variables={}).settings
        assert got.http == (Address("127.0.0.1", 1), Address(path="/run/h.sock"))
        assert got.drain == 2.5


class TestValues:
    def test_lists_have_commas_in_variables_and_may_be_repeated_as_flags(self, desk: Desk) -> None:
        variables = {**RULES, "HEADGATE_HTTP": "127.0.0.1:1, [::1]:2"}
        assert desk.gathered(variables=variables).settings.http == (
            Address("127.0.0.1", 1),
            Address("::1", 2),
        )
        flags = {"grpc": ["127.0.0.1:3,127.0.0.1:4", "unix:/g"]}
        assert [str(one) for one in desk.gathered(flags=flags).settings.grpc] == [
            "127.0.0.1:3",
            "127.0.0.1:4",
            "unix:/g",
        ]

    def test_off_is_none_at_all(self, desk: Desk) -> None:
        got = desk.gathered("grpc: 'off'\ngateways: off").settings
        assert (got.grpc, got.gateways) == ((), ())

    def test_allowed_hosts_are_names_and_wildcards(self, desk: Desk) -> None:
        got = desk.gathered("allowed_hosts: [Limits.Example., '*.shop.example']").settings
        assert got.allowed_hosts == ("limits.example", "*.shop.example")
        assert desk.gathered("allowed_hosts: 'off'").settings.allowed_hosts == ()
        for wrong in ("http://a.example", "a.example:80", "a.*.example", "**"):
            with pytest.raises(SettingsError, match="is not a name of a host"):
                desk.gathered(f"allowed_hosts: '{wrong}'")

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("30", 30.0), ("0.5", 0.5), ("500ms", 0.5), ("2 minutes", 120.0), ("0", 0.0)],
    )
    def test_times_are_seconds_or_have_a_unit(self, desk: Desk, text: str, seconds: float) -> None:
        assert desk.gathered(f"drain: {text}").settings.drain == seconds
        assert desk.gathered(variables={**RULES, "HEADGATE_DRAIN": text}).settings.drain == seconds

    def test_words_that_yaml_reads_as_something_else_are_words_in_variables(
        self, desk: Desk
    ) -> None:
        got = desk.gathered(variables={**RULES, "HEADGATE_NAMESPACE": "true"}).settings
        assert got.namespace == "true"

    def test_permissions_are_octal(self, desk: Desk) -> None:
        assert desk.gathered("socket_mode: 0600").settings.socket_mode == 0o600
        assert desk.gathered(flags={"socket_mode": "666"}).settings.socket_mode == 0o666


class TestSecrets:
    def test_come_from_files_without_the_end_of_the_line(self, desk: Desk) -> None:
        salt, token = desk.file("pepper\n", "salt"), desk.file(f"{TOKEN}\n", "token")
        text = f"salt_file: {salt}\nadmin_token_file: {token}"
        got = desk.gathered(text).settings
        assert (got.salt, got.admin_token) == (b"pepper", TOKEN.encode())

    def test_two_ways_at_once_are_refused_unless_one_wins(self, desk: Desk) -> None:
        salt = desk.file("pepper", "salt")
        assert "salt is given as well" in desk.refused(f"salt: a\nsalt_file: {salt}")[0]
        variables = {**RULES, "HEADGATE_SALT": "of-variable"}
        assert desk.gathered(f"salt_file: {salt}", variables=variables).settings.salt == (
            b"of-variable"
        )
        flags = {"salt_file": salt}
        assert desk.gathered(variables=variables, flags=flags).settings.salt == b"pepper"

    def test_a_file_that_is_missing_or_empty_is_told(self, desk: Desk) -> None:
        assert "No such file" in desk.refused("secret_file: /nowhere")[0]
        empty = desk.file("\n", "empty")
        assert "the file is empty" in desk.refused(f"secret_file: {empty}")[0]

    def test_are_never_repeated(self, desk: Desk) -> None:
        told = desk.refused("admin_token: hunter2\nsecret: [hunter2]\nsalt: {a: hunter2}")
        assert len(told) == 3
        assert not any("hunter2" in line for line in told)
        got = desk.gathered(
            f"admin_token: {TOKEN}\nsalt: pepper\nsecret: mustard-mustard-"
        ).settings
        assert not any(word in repr(got) for word in (TOKEN, "pepper", "mustard"))

    def test_have_no_flags(self, desk: Desk) -> None:
        got = desk.gathered(flags={"salt": "x", "secret": "x", "admin_token": TOKEN}).settings
        assert (got.salt, got.secret, got.admin_token) == (b"", b"", b"")


class TestTokens:
    def test_are_kept_as_digests_however_they_are_given(self, desk: Desk) -> None:
        digest = hashlib.sha256(TOKEN.encode()).digest()
        file = desk.file(f" {TOKEN} \n\n", "token")
        text = (
            "admin_tokens:\n"
            f"  - {{name: ada, role: write, token: {TOKEN}}}\n"
            f"  - {{name: bob, role: read, token_file: {file}}}\n"
            f"  - {{name: eve, role: read, sha256: {digest.hex()}}}\n"
        )
        tokens = desk.gathered(text).settings.admin_tokens
        assert [(one.name, one.role) for one in tokens] == [
            ("ada", "write"),
            ("bob", "read"),
            ("eve", "read"),
        ]
        assert {one.digest for one in tokens} == {digest}

    def test_what_is_wrong_with_them_is_told_at_its_place(self, desk: Desk) -> None:
        text = (
            "admin_tokens:\n"
            f"  - {{name: ada, role: admin, token: {TOKEN}}}\n"
            "  - {name: bob, role: read, token: short}\n"
            "  - {name: eve, role: read}\n"
            "  - {name: eve, role: read, sha256: abc}\n"
            f"  - {{role: read, tokn: {TOKEN}}}\n"
        )
        told = desk.refused(text)
        assert told[0].startswith("headgate.yaml:2:23: error: field 'admin_tokens[0].role'")
        assert "can be guessed" in told[1]
        assert "found none, expected exactly one of token, token_file, sha256" in told[2]
        assert "64 hex digits" in told[3]
        assert any("did you mean 'token'?" in line for line in told[4:])

    def test_two_of_one_name_are_refused(self, desk: Desk) -> None:
        one = f"{{name: ada, role: read, token: {TOKEN}}}"
        assert "used twice" in desk.refused(f"admin_tokens: [{one}, {one}]")[0]


class TestProblems:
    def test_all_are_told_at_once_with_where_each_came_from(self, desk: Desk) -> None:
        told = desk.refused(
            "worker: 3\nhttp: nonsense\nlog_level: loud\n",
            variables={**RULES, "HEADGATE_DRAIN": "30x"},
            flags={"max_body": "-1"},
        )
        assert [line.partition(" error")[0] for line in told] == [
            "headgate.yaml:1:1:",
            "headgate.yaml:2:7:",
            "headgate.yaml:3:12:",
            "HEADGATE_DRAIN:",
            "--max-body:",
        ]
        assert "did you mean 'workers'?" in told[0]

    def test_a_file_that_cannot_be_read_is_told(self, desk: Desk) -> None:
        with pytest.raises(SettingsError, match=r"/nowhere\.yaml: error: cannot be read: No such"):
            gather(flags={}, variables=RULES, config="/nowhere.yaml")
        assert "expected a configuration: a mapping" in desk.refused("- 1")[0]
        assert desk.refused("a: [")[0].startswith("headgate.yaml:")

    def test_without_rules_the_shortest_way_on_is_told(self, desk: Desk) -> None:
        [line] = desk.refused(variables={})
        assert "give --rules FILE" in line

    def test_several_workers_do_not_count_in_memory(self, desk: Desk) -> None:
        [line] = desk.refused(flags={"workers": "4"})
        assert line.startswith("--workers: error: 4 workers with memory:// would each count")
        variables = {**RULES, "HEADGATE_STORE": "redis://localhost"}
        assert desk.gathered(variables=variables, flags={"workers": "4"}).settings.workers == 4

    def test_other_regions_have_names_and_stores_of_their_own(self, desk: Desk) -> None:
        text = "region: eu\nstore: redis://eu\nregion_peers: us=redis://:secret@us"
        [peer] = desk.gathered(text).settings.region_peers
        assert (peer.name, peer.store) == ("us", "redis://:secret@us")
        assert "secret" not in repr(peer)
        assert "region: error: missing" in desk.refused(text.partition("\n")[2])[0]
        assert "eu is this region" in desk.refused(text.replace("us=", "eu="))[0]
        assert "is Redis or Valkey" in desk.refused(text.replace("redis://eu", "memory://"))[0]
        [told] = desk.refused(text.replace("redis://eu", "nothing://user:secret@eu"))
        assert "secret" not in told
        assert "us is not Redis" in desk.refused(text.replace("redis://:secret@", "memory://"))[0]
        twice = text.replace("redis://:secret@us", "redis://eu?timeout=1")
        assert "all would count twice" in desk.refused(twice)[0]
        [told] = desk.refused(text.replace("us=", ""))
        assert "such as us=redis://" in told
        assert "secret" not in told

    def test_a_certificate_without_its_key_is_refused(self, desk: Desk) -> None:
        assert "http_tls_key is missing" in desk.refused("http_tls_cert: a")[0]
        assert "grpc_tls_cert is missing" in desk.refused("grpc_tls_key: a")[0]
        assert "without TLS" in desk.refused("http_tls_client_ca: a")[0]

    def test_two_listeners_at_one_address_are_refused(self, desk: Desk) -> None:
        assert "is taken" in desk.refused("http: 127.0.0.1:1\ngrpc: 127.0.0.1:1")[0]
        text = (
            "http: 127.0.0.1:12\ngrpc: 127.0.0.1:10\nworkers: 3\ngrpc_ports: each\nstore: redis://x"
        )
        assert "127.0.0.1:12 is taken" in desk.refused(text)[0]
        far = "grpc: 127.0.0.1:65535\nworkers: 2\ngrpc_ports: each\nstore: redis://x"
        assert "port 65536" in desk.refused(far)[0]

    def test_serving_nothing_is_refused(self, desk: Desk) -> None:
        assert "nothing would be served" in desk.refused("http: off\ngrpc: off")[0]

    def test_a_variable_that_nobody_knows_is_a_warning(self, desk: Desk) -> None:
        [warning] = desk.gathered(variables={**RULES, "HEADGATE_STORR": "x"}).warnings
        assert "did you mean 'HEADGATE_STORE'?" in str(warning)

    def test_what_kubernetes_says_of_services_is_none_of_ours(self, desk: Desk) -> None:
        links = {
            "HEADGATE_SERVICE_HOST": "10.0.0.1",
            "HEADGATE_SERVICE_PORT_HTTP": "8090",
            "HEADGATE_PORT": "tcp://10.0.0.1:8090",
            "HEADGATE_PORT_8090_TCP_ADDR": "10.0.0.1",
            "HEADGATE_GRPC_SERVICE_PORT": "8091",
        }
        assert desk.gathered(variables={**RULES, **links}).warnings == ()


class TestModel:
    def test_settings_that_contradict_each_other_cannot_be_made(self) -> None:
        with pytest.raises(OptionError, match="there are no rules"):
            Settings()
        with pytest.raises(OptionError, match="workers: 2 workers with memory"):
            Settings(rules="a", workers=2)
