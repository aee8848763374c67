"""What the admin API answers: one history of a policy, call by call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.golden.http_calls import Call, Step, Wait, get, post, record, sent
from tests.golden.transcript import Transcript
from tests.support.service_process import service_process

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ADMIN = "/admin/v1"
WRITER = {"authorization": "Bearer token-of-wanda-the-writer"}
READER = {"authorization": "Bearer token-of-rudi-the-reader"}

CONFIG = """\
admin_tokens:
  - {name: wanda, role: write, token: token-of-wanda-the-writer}
  - {name: rudi, role: read, token: token-of-rudi-the-reader}
"""

RULES = """\
# The limits of the shop.
version: 1
rules:
  - {id: per-ip, key_by: ip, limit: 5/minute}   # everybody
  - id: per-key
    description: what a customer may do
    match: {endpoint: /api/**, method: [GET, POST]}
    key_by: api_key
    limits: {paid: 100/hour, default: 10/hour}
  - {id: exports, match: {endpoint: /exports}, key_by: user_id, limit: 2/hour fixed_window,
     mode: shadow}
  - {id: turns, match: {endpoint: /turns}, key_by: user_id, fair: {slots: 2}}
  - {id: slots, match: {endpoint: /slots}, key_by: user_id, concurrency: 2}
"""


def reads(path: str, headers: Mapping[str, str] | None = None) -> Call:
    return get(ADMIN + path, {**READER, **(headers or {})})


def looks(path: str, content: Any = None) -> Call:
    """A call that changes nothing, with a body."""
    return post(ADMIN + path, content, READER)


def writes(
    method: str, path: str, content: Any = None, headers: Mapping[str, str] | None = None
) -> Call:
    if content is None:
        return Call(method, ADMIN + path, {**WRITER, **(headers or {})})
    return sent(method, ADMIN + path, content, {**WRITER, **(headers or {})})


def checks(path: str, times: int = 1, ip: str = "192.0.2.1", **headers: str) -> Call:
    lines = {name.replace("_", "-"): value for name, value in headers.items()}
    return post("/v1/check", {"path": path, "ip": ip, "headers": lines}, times=times)


ACCESS: dict[str, Step] = {
    "no token": get(f"{ADMIN}/rules"),
    "wrong token": get(f"{ADMIN}/rules", {"authorization": "Bearer wrong"}),
    "no scheme": get(f"{ADMIN}/rules", {"authorization": "token-of-rudi-the-reader"}),
    "other scheme": get(f"{ADMIN}/rules", {"authorization": "Basic cnVkaTpydWRp"}),
    "scheme in capitals": get(
        f"{ADMIN}/history", {"authorization": "BEARER  token-of-rudi-the-reader"}
    ),
    "two tokens": Call(
        "GET", f"{ADMIN}/rules", [*READER.items(), ("authorization", "Bearer other")]
    ),
    "long token": get(f"{ADMIN}/rules", {"authorization": "Bearer " + "x" * 5_000}),
    "empty": get(f"{ADMIN}/rules", {"authorization": ""}),
    "no token, no such path": get(f"{ADMIN}/nothing"),
    "reader writes": Call("DELETE", f"{ADMIN}/rules/per-ip", READER),
    "reader makes a debug token": post(f"{ADMIN}/debug-tokens", {}, READER),
    "writer reads": Call("GET", f"{ADMIN}/history", WRITER),
    "no such path": reads("/nothing"),
    "prefix alone": reads(""),
    "no version": get("/admin/rules", READER),
    "slash at the end": reads("/rules/"),
    "wrong method": Call("PATCH", f"{ADMIN}/rules", READER),
    "wrong method of a rule": Call("POST", f"{ADMIN}/rules/per-ip", READER),
    "HEAD": Call("HEAD", f"{ADMIN}/rules", READER),
}

RULES_READ: dict[str, Step] = {
    "all": reads("/rules"),
    "mode": reads("/rules?mode=shadow"),
    "key_by": reads("/rules?key_by=api_key"),
    "endpoint": reads("/rules?endpoint=/api/x"),
    "tier": reads("/rules?tier=paid"),
    "text": reads("/rules?q=customer"),
    "several filters": reads("/rules?mode=enforce&key_by=ip"),
    "nothing fits": reads("/rules?q=zzz"),
    "page": reads("/rules?limit=2"),
    "next page": reads("/rules?limit=2&offset=2"),
    "beyond the last": reads("/rules?offset=20"),
    "limit of 0": reads("/rules?limit=0"),
    "limit too large": reads("/rules?limit=1001"),
    "limit that is no number": reads("/rules?limit=x"),
    "wrong mode": reads("/rules?mode=on"),
    "unknown parameter": reads("/rules?mod=shadow"),
    "parameter twice": reads("/rules?q=a&q=b"),
    "query that is no UTF-8": reads("/rules?q=%ff"),
    "one": reads("/rules/per-key"),
    "one, known already": reads("/rules/per-key", {"if-none-match": '"1"'}),
    "one, known in another version": reads("/rules/per-key", {"if-none-match": 'W/"7", "8"'}),
    "no such rule": reads("/rules/nobody"),
    "id that cannot be": reads("/rules/%20"),
    "parameter where none is": reads("/rules/per-key?x=1"),
}

LOGIN = {"match": {"endpoint": "/login"}, "key_by": "ip", "limit": "5/minute"}

RULES_WRITTEN: dict[str, Step] = {
    "new": writes("PUT", "/rules/login", LOGIN, {"x-change-note": "ticket 4711"}),
    "read it": reads("/rules/login"),
    "the same again": writes("PUT", "/rules/login", LOGIN),
    "an hour passes": Wait(3600),
    "changed": writes("PUT", "/rules/login", {**LOGIN, "limit": "4/minute"}, {"if-match": '"2"'}),
    "version of before": writes("PUT", "/rules/login", LOGIN, {"if-match": '"2"'}),
    "one of several versions": writes("PUT", "/rules/login", LOGIN, {"if-match": '"2", "3"'}),
    "any version": writes("PUT", "/rules/login", LOGIN, {"if-match": "*"}),
    "any version of nothing": writes("PUT", "/rules/other", LOGIN, {"if-match": "*"}),
    "version without quotes": writes("PUT", "/rules/login", LOGIN, {"if-match": "4"}),
    "weak version": writes("PUT", "/rules/login", LOGIN, {"if-match": 'W/"4"'}),
    "version that is none": writes("PUT", "/rules/login", LOGIN, {"if-match": "four"}),
    "only if it is new": writes("PUT", "/rules/login", LOGIN, {"if-none-match": "*"}),
    "only if it is other": writes("PUT", "/rules/login", LOGIN, {"if-none-match": '"4"'}),
    "new, only if it is": writes(
        "PUT", "/rules/search", {"key_by": "ip", "limit": "9/s"}, {"if-none-match": "*"}
    ),
    "long note": writes("PUT", "/rules/login", LOGIN, {"x-change-note": "x" * 501}),
    "several errors": writes(
        "PUT",
        "/rules/login",
        {"key_by": "api_kee", "limit": "5 a minute", "mdoe": "shadow", "match": {"endpont": "/"}},
    ),
    "no limit": writes("PUT", "/rules/login", {"key_by": "ip"}),
    "no fields": writes("PUT", "/rules/login", {}),
    "other id inside": writes("PUT", "/rules/login", {**LOGIN, "id": "other"}),
    "same id inside": writes("PUT", "/rules/login", {**LOGIN, "id": "login"}),
    "wrong id": writes("PUT", "/rules/a%20b", LOGIN),
    "long id": writes("PUT", "/rules/" + "a" * 101, LOGIN),
    "no object": writes("PUT", "/rules/login", []),
    "no JSON": writes("PUT", "/rules/login", "{"),
    "no body": writes("PUT", "/rules/login"),
    "warning": writes("PUT", "/rules/quiet", {"key_by": "ip", "limit": "1/s", "mode": "off"}),
    "disable": writes("POST", "/rules/per-ip:disable"),
    "disable again": writes("POST", "/rules/per-ip:disable", {}),
    "enable": writes("POST", "/rules/per-ip:enable"),
    "enable in shadow": writes("POST", "/rules/per-ip:enable", {"mode": "shadow"}),
    "enable as before": writes("POST", "/rules/per-ip:enable", {"mode": "enforce"}),
    "enable in a wrong mode": writes("POST", "/rules/per-ip:enable", {"mode": "off"}),
    "enable with other fields": writes("POST", "/rules/per-ip:enable", {"mod": "shadow"}),
    "disable with fields": writes("POST", "/rules/per-ip:disable", {"mode": "off"}),
    "disable nobody": writes("POST", "/rules/nobody:disable"),
    "disable, wrong version": writes("POST", "/rules/per-ip:disable", None, {"if-match": '"1"'}),
    "delete, wrong version": writes("DELETE", "/rules/quiet", None, {"if-match": '"1"'}),
    "delete": writes("DELETE", "/rules/quiet", None, {"x-change-note": "not needed"}),
    "delete again": writes("DELETE", "/rules/quiet"),
    "decided by it": checks("/login", ip="192.0.2.8"),
}

CANDIDATES: dict[str, Step] = {
    "preview": looks("/rules/login/candidate:preview", {"key_by": "ip", "limit": "3/minute"}),
    "preview of nobody": looks("/rules/nobody/candidate:preview", {"key_by": "ip", "limit": "1/s"}),
    "try": writes("POST", "/rules/login/candidate", {**LOGIN, "limit": "3/minute"}),
    "try the same": writes("POST", "/rules/login/candidate", {**LOGIN, "limit": "3/minute"}),
    "try another": writes("POST", "/rules/login/candidate", {**LOGIN, "limit": "2/minute"}),
    "try nonsense": writes("POST", "/rules/login/candidate", {"limit": "x"}),
    "try for nobody": writes("POST", "/rules/nobody/candidate", LOGIN),
    "read it": reads("/rules/login-candidate"),
    "requests": checks("/login", times=3, ip="192.0.2.9"),
    "preview of the adoption": looks("/rules/login/adopt:preview", {}),
    "preview of no adoption": looks("/rules/per-ip/adopt:preview", {}),
    "adopt": writes("POST", "/rules/login/adopt"),
    "adopt again": writes("POST", "/rules/login/adopt"),
    "adopt with fields": writes("POST", "/rules/login/adopt", {"x": 1}),
    "read what was adopted": reads("/rules/login"),
}

POLICY = {
    "version": 1,
    "identity": {"ip": {"ipv6_prefix": 56}},
    "rules": [{"id": "per-ip", "key_by": "ip", "limit": "6/minute"}],
}

POLICIES: dict[str, Step] = {
    "get": reads("/policy"),
    "known already": reads("/policy", {"if-none-match": "*"}),
    "preview rules": looks(
        "/rules:preview",
        {"rules": {"per-ip": {"key_by": "ip", "limit": "2/minute"}, "exports": None}},
    ),
    "preview a wrong rule": looks("/rules:preview", {"rules": {"per-ip": {"limit": "2/minute"}}}),
    "preview nothing": looks("/rules:preview", {"rules": {}}),
    "preview no rules": looks("/rules:preview", {"rules": [1], "x": 2}),
    "preview a policy": looks("/policy:preview", POLICY),
    "preview a wrong policy": looks("/policy:preview", {"version": 2, "rules": [{}]}),
    "preview as a stranger": post(f"{ADMIN}/policy:preview", POLICY),
    "put": writes("PUT", "/policy", POLICY, {"if-match": '"12"', "x-change-note": "anew"}),
    "put, any version": writes("PUT", "/policy", POLICY, {"x-change-note": "anew"}),
    "put the same": writes("PUT", "/policy", POLICY),
    "put what is wrong": writes("PUT", "/policy", {"version": 1, "ruels": []}),
    "get it": reads("/policy"),
    "history": reads("/history"),
    "history, a page": reads("/history?limit=2"),
    "history, the next page": reads("/history?limit=2&before=3"),
    "history, wrong page": reads("/history?limit=501&before=x"),
    "first revision": reads("/history/1"),
    "second revision": reads("/history/2"),
    "revision to come": reads("/history/999"),
    "roll back": writes("POST", "/rollback", {"revision": 2}, {"x-change-note": "back"}),
    "roll back again": writes("POST", "/rollback", {"revision": 2}),
    "roll back to nowhere": writes("POST", "/rollback", {"revision": 999}),
    "roll back to 0": writes("POST", "/rollback", {"revision": 0, "note": "x"}),
    "roll back, wrong version": writes("POST", "/rollback", {"revision": 1}, {"if-match": '"1"'}),
    "roll back to the first": writes("POST", "/rollback", {"revision": 1}),
    "status": reads("/status"),
}

KEY = {"rule": "per-ip", "key": "ip=192.0.2.1"}

KEYS: dict[str, Step] = {
    "use some": checks("/", times=3),
    "use of a key": checks("/api/x", ip="192.0.2.20", x_api_key="secret"),
    "counters of a rule": reads("/keys?rule=per-ip"),
    "counters of a rule, one": reads("/keys?rule=per-ip&limit=1"),
    "counters by pattern": reads("/keys?rule=per-ip&pattern=*192.0.2.2*"),
    "counters of nobody": reads("/keys?rule=nobody"),
    "no rule": reads("/keys"),
    "one counter": reads("/keys?rule=per-ip&key=ip%3D192.0.2.1"),
    "counter that is not used": reads("/keys?rule=per-ip&key=ip%3D203.0.113.1"),
    "key of another shape": reads("/keys?rule=per-ip&key=user%3Dada"),
    "key without a tier": reads("/keys?rule=per-key&key=x"),
    "tier that is none": looks(
        "/keys:lookup", {"rule": "per-key", "key": "api_key=~" + "0" * 32, "tier": "gold"}
    ),
    "tier": looks(
        "/keys:lookup", {"rule": "per-key", "key": "api_key=~" + "0" * 32, "tier": "paid"}
    ),
    "by key": looks("/keys:lookup", KEY),
    "by request": looks(
        "/keys:lookup", {"rule": "per-ip", "request": {"path": "/", "ip": "192.0.2.1"}}
    ),
    "by request that it is not for": looks(
        "/keys:lookup", {"rule": "exports", "request": {"path": "/", "ip": "192.0.2.1"}}
    ),
    "by identity": looks("/keys:lookup", {"rule": "per-key", "identity": {"api_key": "secret"}}),
    "by identity, address": looks("/keys:lookup", {"rule": "per-ip", "identity": {"ip": "::1"}}),
    "by identity that is none": looks(
        "/keys:lookup", {"rule": "per-key", "identity": {"apikey": "secret", "user_id": 5}}
    ),
    "by all of them": looks("/keys:lookup", {**KEY, "request": {}, "identity": {}}),
    "by nothing": looks("/keys:lookup", {"rule": "per-ip"}),
    "wrong": looks("/keys:lookup", {"rule": 5, "key": "", "tier": "a", "x": 1, "request": 1}),
    "of no rule": looks("/keys:lookup", {"rule": "nobody", "key": "ip=1"}),
    "of a fair rule": looks("/keys:lookup", {"rule": "turns", "key": "user_id=a"}),
    "of slots": looks("/keys:lookup", {"rule": "slots", "key": "user_id=a"}),
    "grant": writes("POST", "/keys:grant", {**KEY, "extra": 3, "ttl": 600}),
    "granted": looks("/keys:lookup", KEY),
    "grant until": writes(
        "POST", "/keys:grant", {**KEY, "extra": 4, "until": "2030-01-02T00:00:00Z"}
    ),
    "grant nothing": writes("POST", "/keys:grant", {**KEY, "extra": 0, "ttl": 600}),
    "grant for no time": writes("POST", "/keys:grant", {**KEY, "extra": 1}),
    "grant for the past": writes(
        "POST", "/keys:grant", {**KEY, "extra": 1, "until": "2020-01-01T00:00:00Z"}
    ),
    "grant for no ttl": writes("POST", "/keys:grant", {**KEY, "extra": 1, "ttl": 0}),
    "grant by both": writes(
        "POST", "/keys:grant", {**KEY, "extra": 1, "ttl": 5, "until": "2031-01-01T00:00:00Z"}
    ),
    "use what is granted": checks("/", times=7),
    "block": writes("POST", "/keys:block", {**KEY, "ttl": 60.5}, {"x-change-note": "abuse"}),
    "blocked": looks("/keys:lookup", KEY),
    "refused": checks("/"),
    "block by identity": writes(
        "POST",
        "/keys:block",
        {
            "rule": "per-key",
            "identity": {"api_key": "secret"},
            "until": "2030-06-01T12:00:00+02:00",
        },
    ),
    "block wrongly": writes("POST", "/keys:block", {**KEY, "extra": 1, "until": "tomorrow"}),
    "overrides": reads("/overrides"),
    "overrides of a rule": reads("/overrides?rule=per-ip"),
    "overrides of a key": reads("/overrides?rule=per-ip&key=ip%3D192.0.2.99"),
    "overrides, unknown parameter": reads("/overrides?rul=per-ip"),
    "unblock": writes("POST", "/keys:unblock", KEY),
    "unblock again": writes("POST", "/keys:unblock", KEY),
    "grant once more": writes("POST", "/keys:grant", {**KEY, "extra": 3, "ttl": 600}),
    "unblock what is granted": writes("POST", "/keys:unblock", KEY),
    "end the override": writes("DELETE", "/overrides?rule=per-ip&key=ip%3D192.0.2.1"),
    "end it again": writes("DELETE", "/overrides?rule=per-ip&key=ip%3D192.0.2.1"),
    "end nothing": writes("DELETE", "/overrides"),
    "end, wrong version": writes(
        "DELETE", "/overrides?rule=per-ip&key=ip%3D192.0.2.1", None, {"if-match": '"1"'}
    ),
    "reset": writes("POST", "/keys:reset", KEY),
    "reset, wrong version": writes("POST", "/keys:reset", KEY, {"if-match": '"1"'}),
    "reset nobody": writes("POST", "/keys:reset", {"rule": "nobody", "key": "a"}),
    "after the reset": looks("/keys:lookup", KEY),
}

EXPLAINED: dict[str, Step] = {
    "allowed": looks("/explain", {"path": "/", "ip": "192.0.2.30"}),
    "several rules": looks(
        "/explain",
        {
            "path": "/api/x",
            "method": "POST",
            "ip": "192.0.2.30",
            "headers": {"x-api-key": "other", "x-tier": "paid"},
        },
    ),
    "fair": looks("/explain", {"path": "/turns", "headers": {"x-user-id": "ada"}}),
    "slots": looks("/explain", {"path": "/slots", "headers": {"x-user-id": "ada"}}),
    "blocked": looks(
        "/explain", {"path": "/api/x", "ip": "192.0.2.30", "headers": {"x-api-key": "secret"}}
    ),
    "use all": checks("/", times=6, ip="192.0.2.31"),
    "denied": looks("/explain", {"path": "/", "ip": "192.0.2.31"}),
    "shadow": looks("/explain", {"path": "/exports", "cost": 3, "headers": {"x-user-id": "a"}}),
    "wrong": looks("/explain", {"ip": "x"}),
    "no body": looks("/explain", ""),
}

DEBUG = {"headgate-debug": "{token}"}

DEBUGGED: dict[str, Step] = {
    "token": writes("POST", "/debug-tokens"),
    "token for a minute": writes("POST", "/debug-tokens", {"ttl": 60}),
    "token for ever": writes("POST", "/debug-tokens", {"ttl": 10**9, "x": 1}),
    "token for no time": writes("POST", "/debug-tokens", {"ttl": 0}),
    "check": post("/v1/check", {"path": "/", "ip": "192.0.2.40"}, DEBUG),
    "check, several rules": post(
        "/v1/check",
        {"path": "/api/x", "ip": "192.0.2.40", "headers": {"x-api-key": "third"}},
        DEBUG,
    ),
    "check, denied": post("/v1/check", {"path": "/", "ip": "192.0.2.31"}, DEBUG),
    "check, shadow": post("/v1/check", {"path": "/exports", "ip": "192.0.2.40"}, DEBUG),
    "authorize": get("/v1/authorize/slots", {**DEBUG, "x-user-id": "ada"}),
    "authorize, HEAD": Call("HEAD", "/v1/authorize/exports", {**DEBUG, "x-user-id": "ada"}),
    "reserve": post("/v1/reservations", {"path": "/", "ip": "192.0.2.40", "cost": 1}, DEBUG),
    "token that is none": post(
        "/v1/check", {"path": "/", "ip": "192.0.2.40"}, {"headgate-debug": "x.y"}
    ),
    "a minute passes": Wait(61),
    "token that is over": post("/v1/check", {"path": "/", "ip": "192.0.2.40"}, DEBUG),
}

REPORTS: dict[str, Step] = {
    "status": reads("/status"),
    "status, with a parameter": reads("/status?x=1"),
    "pressure": reads("/pressure"),
    "pressure, one": reads("/pressure?limit=1"),
    "pressure, too many": reads("/pressure?limit=1001"),
    "audit": reads("/audit?limit=1000"),
    "audit, the last": reads("/audit?limit=3"),
    "audit, none": reads("/audit?limit=0"),
    "audit, too many": reads("/audit?limit=1001"),
}

UNSTABLE = {
    "$.token": r"\d{10}\.[0-9a-f]{64}",
    "$.id": r"[\w-]{60,600}",
    "location": r"/v1/reservations/[\w-]{60,600}",
    "place": r".*rules\.yaml",
}
GROUPS: dict[str, dict[str, Step]] = {
    "access": ACCESS,
    "rules_read": RULES_READ,
    "rules_written": RULES_WRITTEN,
    "candidates": CANDIDATES,
    "policies": POLICIES,
    "keys": KEYS,
    "explained": EXPLAINED,
    "debugged": DEBUGGED,
    "reports": REPORTS,
}


def test_history_of_a_policy(tmp_path: Path) -> None:
    flags = ("--config", "headgate.yaml", "--rules", "rules.yaml", "--audit-file", "audit.jsonl")
    files = {"headgate.yaml": CONFIG, "rules.yaml": RULES}
    with service_process(tmp_path, *flags, files=files) as service:
        transcripts = []
        for name, corpus in GROUPS.items():
            unstable = {**UNSTABLE, **({"id": "[0-9a-f]{16}"} if name == "reports" else {})}
            transcript = Transcript(f"admin/{name}", unstable=unstable)
            record(service, corpus, transcript)
            transcripts.append(transcript)
        for transcript in transcripts:
            transcript.check()
