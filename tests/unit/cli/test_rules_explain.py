"""`headgate rules explain`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from headgate.cli import main

if TYPE_CHECKING:
    from pathlib import Path

POLICY = """\
version: 1
identity:
  api_key: {header: x-api-key}
  session: {cookie: sid}
  tier: {header: x-tier, default: free}
  ip: {trusted_proxies: [10.0.0.0/8], ipv6_prefix: 64}
rules:
  - id: login
    description: Against guessed passwords
    match: {endpoint: /login, method: POST}
    key_by: ip
    limit: 5/minute sliding_window_log
    on_store_failure: fail_closed
  - id: api
    match: {endpoint: "/api/**"}
    key_by: [api_key, endpoint]
    limits: {free: 2/s; 10/hour, paid: 100/s}
    cost: {default: 1, endpoints: {"/api/export": 2}}
  - id: trial
    match: {endpoint: "/api/**"}
    key_by: session
    limit: 1/minute
    mode: shadow
  - id: partners
    match: {host: "*.example.com", headers: {x-api-key: sesame, x-beta: [a, b]}}
    key_by: global
    limit: 1/s
  - id: plan
    match: {attributes: {plan: big}, cookies: {sid: true}}
    key_by: global
    limit: 1/s
    headers: redacted
overrides:
  - {rule: login, key: ip=198.51.100.9, block: true, until: 9999-12-31T00:00:00Z}
  - {rule: login, key: ip=198.51.100.8, extra: 7, until: 9999-12-31T00:00:00Z}
  - {rule: login, key: ip=198.51.100.7, block: true, until: 1999-12-31T00:00:00Z}
  - rule: api
    key: api_key!ip=198.51.100.9&endpoint=/api
    block: true
    until: 9999-12-31T00:00:00Z
"""
ENVIRONMENT = ("HEADGATE_STORE", "HEADGATE_NAMESPACE", "HEADGATE_SALT")


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run `headgate rules explain` on `POLICY`: its status, stdout and stderr."""
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "rules.yaml"
    path.write_text(POLICY)

    def run(*argv: str) -> tuple[int, str, str]:
        capsys.readouterr()
        return main(["rules", "explain", str(path), *argv]), *capsys.readouterr()

    return run


@pytest.fixture
def data(ask: Any) -> Any:
    """The same as data."""

    def run(*argv: str) -> Any:
        return json.loads(ask(*argv, "--json")[1])

    return run


def rule(found: Any, name: str) -> dict[str, Any]:
    return next(one for one in found["rules"] if one["id"] == name)


class TestOutcome:
    def test_what_would_be_allowed_is_told_with_its_headers(self, ask: Any) -> None:
        status, out, err = ask("POST /login", "--ip", "1.2.3.4")
        assert (status, err) == (0, "")
        for told in (
            "POST /login from 1.2.3.4\n",
            "login allows it\n",
            "Against guessed passwords\n",
            "ip: 1.2.3.4, the peer\n",
            "key         ip=1.2.3.4\n",
            "5/m sliding_window_log (5 per minute): 4 left after it\n",
            "(fail_closed)\n",
            "Allowed.\n",
            "X-RateLimit-Remaining: 4\n",
            'RateLimit: "login";r=4;t=60\n',
        ):
            assert told in out

    def test_the_sixth_of_five_is_refused_with_the_whole_response(self, ask: Any) -> None:
        assert ask("POST /login", "--repeat", "5")[0] == 0
        status, out, _ = ask("POST /login", "--repeat", "6")
        assert status == 1
        for told in (
            "the 6th at",
            "login denies it for 1m\n",
            "Denied by login; retry in 1m.\n",
            "HTTP/1.1 429 Too Many Requests\n",
            "Retry-After: 60\n",
            '"limit": "login"',
        ):
            assert told in out

    def test_a_blocked_caller_is_told_so(self, ask: Any, data: Any) -> None:
        status, out, _ = ask("POST /login", "--ip", "198.51.100.9")
        assert status == 1
        assert ": the key is blocked\n" in out
        assert '"error": "blocked"' in out
        assert rule(data("POST /login", "--ip", "198.51.100.9"), "login")["source"] == "override"
        assert ask("POST /login", "--ip", "198.51.100.7")[0] == 0

    def test_rules_that_are_not_asked_for_a_block_are_told(self, ask: Any) -> None:
        status, out, _ = ask("/api", "--ip", "198.51.100.9")
        assert status == 1
        assert "does not apply: it is not checked, because an override blocks the caller" in out

    def test_a_caller_with_more_is_told_the_larger_limit(self, ask: Any) -> None:
        assert "12/m sliding_window_log" in ask("POST /login", "--ip", "198.51.100.8")[1]

    def test_a_cost_that_never_fits_is_told_so(self, ask: Any) -> None:
        status, out, _ = ask("POST /login", "--cost", "6")
        assert status == 1
        assert "Denied by login; a retry cannot succeed." in out
        assert "Retry-After" not in out
        assert ask("POST /login", "--cost", "0", "--repeat", "9")[0] == 0

    def test_nothing_matching_is_allowed_and_nothing_is_added(self, ask: Any) -> None:
        status, out, _ = ask("/")
        assert status == 0
        assert "no enforced rule applies" in out
        assert "No headers are added" in out

    def test_a_rule_in_shadow_is_told_and_decides_nothing(self, ask: Any) -> None:
        status, out, _ = ask("/api/x", "--repeat", "2")
        assert status == 0
        assert "trial (shadow) would deny it for 1m\n" in out
        assert "Allowed. If enforced, these shadow rules would deny it: trial." in out

    def test_a_candidate_is_told_as_such(self, ask: Any, data: Any, tmp_path: Path) -> None:
        trial = "{id: tighter, key_by: ip, limit: 1/m, mode: shadow, candidate_of: login}"
        path = tmp_path / "rules.yaml"
        path.write_text(path.read_text().replace("rules:\n", f"rules:\n  - {trial}\n", 1))
        status, out, _ = ask("POST /login", "--repeat", "2")
        assert status == 0
        assert "tighter (shadow, candidate of login) would deny it for 1m\n" in out
        assert rule(data("POST /login"), "tighter")["candidate_of"] == "login"
        assert rule(data("POST /login"), "login")["candidate_of"] is None

    def test_a_redacted_rule_is_told_to_the_operator_alone(self, ask: Any, data: Any) -> None:
        asked = ["/", "--attribute", "plan=big", "--cookie", "sid=1", "--repeat", "2"]
        assert "Denied by plan;" in ask(*asked)[1]
        assert "plan" not in str(data(*asked)["response"])

    def test_problem_details_are_for_those_who_ask(self, data: Any) -> None:
        asked = ["POST /login", "--repeat", "6", "-H", "Accept: application/problem+json"]
        response = data(*asked)["response"]
        assert response["status"] == response["body"]["status"] == 429
        assert ["Content-Type", "application/problem+json"] in response["headers"]


class TestRules:
    def test_stacked_limits_are_those_of_the_tier(self, data: Any) -> None:
        limits = rule(data("/api/x"), "api")["limits"]
        assert [(one["limit"], one["remaining"]) for one in limits] == [("2/s", 1), ("10/h", 9)]
        limits = rule(data("/api/x", "--tier", "paid"), "api")["limits"]
        assert [one["limit"] for one in limits] == ["100/s"]

    def test_the_cost_is_that_of_the_endpoint(self, data: Any) -> None:
        assert rule(data("/api/export"), "api")["cost"] == 2
        assert rule(data("/api/export", "--cost", "1"), "api")["cost"] == 1

    def test_a_tier_without_limits_is_told(self, ask: Any, data: Any) -> None:
        reason = "tier is gold, and there are limits for free or paid only"
        assert f"api does not apply: {reason}" in ask("/api/x", "--tier", "gold")[1]
        told = rule(data("/api/x", "--tier", "gold"), "api")
        assert (told["matches"], told["applies"], told["reason"]) == (True, False, reason)

    def test_the_address_is_that_behind_trusted_proxies(self, data: Any) -> None:
        forwarded = ["-H", "X-Forwarded-For: 6.6.6.6, 2001:db8::5"]
        told = rule(data("POST /login", "--ip", "10.0.0.1", *forwarded), "login")
        assert told["key"] == "ip=2001:db8::/64"
        assert "the trusted proxy 10.0.0.1" in told["account"][0]
        told = rule(data("POST /login", "--ip", "1.2.3.4", *forwarded), "login")
        assert told["key"] == "ip=1.2.3.4"

    @pytest.mark.parametrize(
        ("name", "argv", "reason"),
        [
            ("login", ["POST /x"], "path is /x, expected /login"),
            ("login", ["/login"], "method is GET, expected POST"),
            ("login", ["HEAD /login"], "method is HEAD, expected POST"),
            ("partners", ["/"], "host is missing, expected *.example.com"),
            ("partners", ["/", "--host", "b.org"], "host is b.org, expected *.example.com"),
            ("partners", ["http://a.example.com"], "header x-api-key is missing"),
            (
                "partners",
                ["http://a.example.com", "-H", "x-api-key: k"],
                "header x-api-key is there, with another value",
            ),
            (
                "partners",
                ["http://a.example.com", "-H", "x-api-key: sesame", "-H", "x-beta: c"],
                "header x-beta is c, expected a or b",
            ),
            ("plan", ["/", "--cookie", "sid=1"], "attribute plan is missing, expected big"),
            ("plan", ["/", "--attribute", "plan=big"], "cookie sid is missing"),
        ],
    )
    def test_a_rule_that_does_not_match_says_why(
        self, name: str, argv: list[str], reason: str, data: Any
    ) -> None:
        told = rule(data(*argv), name)
        assert not told["matches"]
        assert told["reason"] == reason

    def test_of_many_that_do_not_match_the_nearest_are_listed(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        many = "".join(
            f"  - {{id: r{n}, match: {{endpoint: /{n}}}, key_by: ip, limit: 1/s}}\n"
            for n in range(30)
        )
        near = "  - {id: near, match: {endpoint: /x, method: PUT}, key_by: ip, limit: 1/s}\n"
        path = tmp_path / "many.yaml"
        path.write_text(f"version: 1\nrules:\n{many}{near}")
        assert main(["rules", "explain", str(path), "/x"]) == 0
        out = capsys.readouterr().out
        assert "near  method is GET, expected PUT\n" in out
        assert "and 11 more; --all lists them\n" in out
        assert main(["rules", "explain", str(path), "/x", "--all"]) == 0
        assert "  r29   path is" in capsys.readouterr().out


class TestRequest:
    @pytest.mark.parametrize(
        ("text", "method", "path", "host"),
        [
            ("/login", "GET", "/login", ""),
            ("post  /login", "POST", "/login", ""),
            ("POST /login?next=/ HTTP/1.1", "POST", "/login", ""),
            ("https://u:p@a.org:8443/x?y#z", "GET", "/x", "a.org:8443"),
            ("PUT http://a.org", "PUT", "/", "a.org"),
            ("OPTIONS *", "OPTIONS", "*", ""),
            ("GET /a b", "GET", "/a b", ""),
        ],
    )
    def test_it_is_read_as_people_write_it(
        self, text: str, method: str, path: str, host: str, data: Any
    ) -> None:
        asked = data(text)["request"]
        assert (asked["method"], asked["path"], asked["host"]) == (method, path, host)

    def test_the_path_is_shown_as_it_is_read(self, ask: Any, data: Any) -> None:
        status, out, _ = ask("POST /x/..//LOGIN%2f", "--repeat", "6")
        assert status == 1
        assert "read as     /login\n" in out
        assert "/x/../login" in out
        assert data("/a%2Fb")["request"]["read_as"][0] == "/a/b"

    def test_a_host_can_be_said_in_three_ways(self, data: Any) -> None:
        url, header, flag = "http://u.org/", ["-H", "Host: h.org"], ["--host", "f.org"]
        assert data(url)["request"]["host"] == "u.org"
        assert data(url, *header)["request"]["host"] == "h.org"
        assert data(url, *header, *flag)["request"]["host"] == "f.org"

    @pytest.mark.parametrize("path", ["/\x1b[31m", "/ü", "/a\nb"])
    def test_nothing_is_printed_that_a_terminal_would_obey(self, path: str, ask: Any) -> None:
        out = ask(f"GET {path}", "--host", path, "-H", f"x-tier: {path}")[1]
        assert all(line.isprintable() for line in out.split("\n"))

    @pytest.mark.parametrize(
        ("argv", "said"),
        [
            (["login"], "expected 'POST /login'"),
            (["POST"], "expected 'POST /login'"),
            (["/", "-H", "sesame"], "argument -H/--header: "),
            (["/", "-H", "se same: x"], "argument -H/--header: "),
            (
                ["/", "--cookie", "sesame"],
                "--cookie: no name and value; expected name=value",
            ),
            (
                ["/", "--attribute", "sesame"],
                "--attribute: no name and value; expected name=value",
            ),
            (["/", "--ip", "1.2.3"], "expected an address"),
            (["/", "--cost", "-1"], "--cost"),
            (["/", "--repeat", "0"], "whole number"),
            (["/", "--repeat", "1000000"], "at most 100000"),
            (["/", "--store", "redis://h", "--repeat", "2"], "--store memory://"),
            (["/", "--store", "mongo://h"], "cannot open the store"),
        ],
    )
    def test_what_makes_no_sense_is_one_line(self, argv: list[str], said: str, ask: Any) -> None:
        status, out, err = ask(*argv)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert said in err
        assert "same" not in err

    def test_a_tier_that_is_looked_up_cannot_be_said(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "rules.yaml"
        tier = "{lookup: api_key, values: {sesame: paid}}"
        path.write_text(f"version: 1\nidentity: {{tier: {tier}}}\nrules: []\n")
        assert main(["rules", "explain", str(path), "/", "--tier", "paid"]) == 2
        assert "by api_key" in capsys.readouterr().err

    @pytest.mark.parametrize("source", ["cookie: t", "attribute: t"])
    def test_a_tier_is_said_where_it_is_looked_for(
        self, source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "rules.yaml"
        rules = "[{id: a, key_by: ip, limits: {paid: 1/s}}]"
        path.write_text(f"version: 1\nidentity: {{tier: {{{source}}}}}\nrules: {rules}\n")
        assert main(["rules", "explain", str(path), "/", "--tier", "paid", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["request"]["tier"] == "paid"


class TestSecrets:
    ASKED = ("/api/x", "-H", "x-api-key: sesame", "--cookie", "sid=sesame")

    @pytest.mark.parametrize("more", [[], ["--json"]])
    def test_they_are_not_shown(self, more: list[str], ask: Any) -> None:
        out = ask(*self.ASKED, "--host", "a.example.com", *more)[1]
        assert "sesame" not in out
        assert "api_key=~" in out

    @pytest.mark.parametrize("source", ["header: authorization", "cookie: t"])
    @pytest.mark.parametrize("more", [[], ["--json"]])
    def test_a_tier_from_where_secrets_are_is_shown_only_if_it_is_one(
        self,
        source: str,
        more: list[str],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        path = tmp_path / "rules.yaml"
        rules = "[{id: a, match: {tier: gold}, key_by: ip, limits: {gold: 1/s}}]"
        path.write_text(f"version: 1\nidentity: {{tier: {{{source}}}}}\nrules: {rules}\n")
        for tier, shown in (("sesame", "tier is a secret, expected gold"), ("gold", "gold")):
            assert main(["rules", "explain", str(path), "/", "--tier", tier, *more]) == 0
            out = capsys.readouterr().out
            assert "sesame" not in out
            assert shown in out

    def test_the_salt_is_that_of_the_service(
        self, data: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain = rule(data(*self.ASKED), "api")["key"]
        monkeypatch.setenv("HEADGATE_SALT", "pepper")
        assert rule(data(*self.ASKED), "api")["key"] != plain


def test_a_policy_with_errors_is_not_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("version: 1\nrule: []\n")
    assert main(["rules", "explain", str(path), "/"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "did you mean 'rules'?" in printed.err
    assert "is invalid" in printed.err
