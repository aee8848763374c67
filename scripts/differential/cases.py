"""Random cases: limits or policies, and a history of calls with a clock that is moved by hand.

Numbers are small, so that limits are reached, windows end and costs do not fit.
"""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any, Final

Json = dict[str, Any]

KINDS: Final = ("limiter", "policy", "asgi", "wsgi")
SECOND: Final = 1_000_000_000
ALGORITHMS: Final = (
    "token_bucket",
    "gcra",
    "leaky_bucket",
    "fixed_window",
    "sliding_window_log",
    "sliding_window_counter",
)
PACED: Final = ALGORITHMS[:3]
UNITS: Final = ("s", "s", "10s", "minute", "500ms", "hour")
PATHS: Final = (
    "/login",
    "/api/v1/items",
    "/api/v1/items/42",
    "/api/export",
    "/",
    "//login",
    "/%6cogin",
    "/a/../login",
    "/LOGIN/",
    "/api/v1/caf%C3%A9",
    "/api;x=1/v1/items",
)
PATTERNS: Final = ("/login", "/api/**", "/api/v1/*", "/**", "/*/v1/items", "/**/items/*")
METHODS: Final = ("GET", "POST", "HEAD", "DELETE")
HOSTS: Final = ("api.example.com", "www.example.com", "example.org:8080", "API.example.com")
PEERS: Final = ("203.0.113.7", "203.0.113.8", "10.0.0.1", "2001:db8::1", "2001:db8::2", "")
TIERS: Final = ("free", "paid", "gold")
KEYS: Final = (
    "ip",
    "ip",
    "endpoint",
    "method",
    "host",
    "api_key",
    "user_id",
    "tenant",
    "header:x-org",
    "cookie:sid",
    "attribute:plan",
)


def new_case(seed: str, kinds: tuple[str, ...], stores: tuple[str, ...], steps: int) -> Json:
    """The case of *seed*; stores are `memory` and `redis`, and the caller makes URLs of them."""
    rng = Random(seed)
    kind = rng.choices(kinds, [3 if kind in ("limiter", "policy") else 2 for kind in kinds])[0]
    start = 1_700_000_000 + rng.randrange(10_000_000) + rng.choice((0.0, 0.25, 0.999999))
    case: Json = {
        "kind": kind,
        "store": rng.choices(stores, [2 if store == "memory" else 1 for store in stores])[0],
        "start": start,
        "namespace": f"differential-{seed}",
    }
    if kind == "limiter":
        case["limits"] = _limit_stack(rng)
        case["steps"] = _limiter_steps(rng, case["limits"], steps)
    elif kind == "policy":
        case["policy"] = _policy(rng, start)
        case["steps"] = _policy_steps(rng, steps, start)
    else:
        case["headers"] = rng.choice(("on", "on", "on", "redacted"))
        if rng.random() < 0.3:
            case["limits"] = "; ".join(_text(rng) for _ in range(rng.randint(1, 3)))
        else:
            case["policy"] = _policy(rng, start, for_app=True)
        case["steps"] = [
            _moved(rng) or ["request", _request(rng), rng.choice((0, 1, 5, 30))]
            for _ in range(steps)
        ]
    return case


def _moved(rng: Random) -> list[Any] | None:
    """A step of the clock, one time in three, never back: 0.1 denied for as long as it was behind.

    Many end where something changes: when the last decision says so, or with a second.
    """
    if rng.random() > 0.35:
        return None
    if rng.random() < 0.25:
        return ["wait", rng.choice(("retry_after", "reset_after")), rng.choice((-1, 0, 1))]
    if rng.random() < 0.1:
        return ["align", SECOND]
    far = rng.choice((1, 1000, SECOND // 3, SECOND // 2, SECOND, 7 * SECOND, 61 * SECOND))
    return ["advance", far * rng.choice((1, 1, 1, 3))]


# ---- limits -------------------------------------------------------------------------------


def _text(rng: Random, least: int = 1) -> str:
    """A limit in the notation, of at least *least* at once."""
    algorithm = rng.choice(ALGORITHMS)
    text = f"{max(least, rng.choice((1, 2, 3, 5, 10, 100)))}/{rng.choice(UNITS)}"
    if algorithm in PACED and rng.random() < 0.4:
        text += f" burst {max(least, rng.choice((1, 4, 20)))}"
    elif algorithm in PACED and rng.random() < 0.1:
        return f"{least}/s peak 10/s for 5s {algorithm}"
    elif algorithm == "sliding_window_counter" and rng.random() < 0.4:
        return f"{text} subwindows {rng.choice((2, 5))} {algorithm}"
    return text if algorithm == "token_bucket" else f"{text} {algorithm}"


def _limit_stack(rng: Random) -> list[Any]:
    kind = rng.random()
    if kind < 0.12:
        rate = [rng.choice((1, 2, 7)), rng.choice((1, 3))]
        wait = rng.choice((None, 0, 2, 10))
        return [["LeakyQueue", {"rate": rate, "queue": rng.choice((0, 2, 10)), "max_wait": wait}]]
    if kind < 0.3:
        odd = [rng.choice((1, 5, 167)), rng.choice((3, 7, 100))]
        return [["TokenBucket", {"capacity": rng.choice((1, 9)), "refill_rate": odd}]]
    return [_text(rng) for _ in range(rng.choice((1, 1, 2, 3)))]


def _cost(rng: Random) -> Any:
    if rng.random() < 0.02:
        return rng.choice((-1, 1.5, "1", None, True))
    return rng.choice((1, 1, 1, 1, 0, 2, 3, 7, 150))


def _limiter_steps(rng: Random, limits: list[Any], count: int) -> list[list[Any]]:
    has_slots = limits[0][0] == "Concurrency"
    made: list[list[Any]] = []
    while len(made) < count:
        made.append(_moved(rng) or (_slot_step if has_slots else _limiter_step)(rng, made))
    return made


def _name(rng: Random, made: list[list[Any]], *openings: str) -> str:
    """The name that one of the *openings* among the steps has given, mostly of the last."""
    names = [step[1] for step in made if step[0] in openings]
    return str(rng.choice(names[-3:])) if names else ""


def _slot_step(rng: Random, made: list[list[Any]]) -> list[Any]:
    name = _name(rng, made, "enter")
    choices: list[list[Any]] = [["renew", name], ["leave", name], ["hit", "a", 1], ["reset", "a"]]
    enter = ["enter", str(len(made)), rng.choice(("a", "b"))]
    step = rng.choices([enter, *choices], (6, 2, 4, 0.2, 0.3))[0]
    return step if name else enter


def _limiter_step(rng: Random, made: list[list[Any]]) -> list[Any]:
    key, cost = rng.choices(("a", "b", "user:é", " "), (8, 2, 1, 0.1))[0], _cost(rng)
    name = _name(rng, made, "reserve")
    hits = [
        {
            "key": rng.choice(("a", "b")),
            "limit": _text(rng),
            "cost": rng.choice((0, 1, 2)),
            "name": f"hit-{place}" if rng.random() < 0.5 else None,
        }
        for place in range(rng.randint(1, 3))
    ]
    pairs = [[rng.choice(("a", "b")), rng.choice((0, 1, 2))] for _ in range(rng.randint(1, 4))]
    weighted: list[tuple[float, list[Any]]] = [
        (10, ["hit", key, cost]),
        (4, ["peek", key, cost]),
        (2, ["charge", key, cost]),
        (2, ["refund", key, cost]),
        (1, ["acquire", key, cost, rng.choice((0, 1, 20))]),
        (2, ["hit_many", pairs]),
        (1.5, ["hit_all", hits]),
        (0.5, ["reset", key]),
        (2, ["reserve", str(len(made)), key, cost, rng.choice((1, 60))]),
        (1.5, ["commit", name, rng.choice((None, 0, 1, 3, 9))]),
        (1, ["cancel", name]),
    ]
    return _chosen(rng, weighted)


def _chosen(rng: Random, weighted: list[tuple[float, list[Any]]]) -> list[Any]:
    """One of the steps; none that is about a name which nothing has."""
    possible = [(weight, step) for weight, step in weighted if step[1] != ""]
    return rng.choices([step for _, step in possible], [weight for weight, _ in possible])[0]


# ---- policies -----------------------------------------------------------------------------


def _some(rng: Random, pool: tuple[str, ...], most: int = 2) -> Any:
    chosen = rng.sample(sorted(set(pool)), rng.randint(1, most))
    return chosen[0] if len(chosen) == 1 else chosen


def _match(rng: Random) -> Json:
    parts: Json = {
        "endpoint": _some(rng, PATTERNS),
        "method": _some(rng, METHODS),
        "host": _some(rng, ("api.example.com", "*.example.com", "example.org")),
        "tier": _some(rng, TIERS),
        "headers": {"x-org": rng.choice((True, "acme", ["acme", "umbrella"]))},
        "cookies": {"sid": rng.choice((True, "s1"))},
        "attributes": {"plan": rng.choice((True, "pro"))},
    }
    weights = {"endpoint": 0.7, "method": 0.2, "host": 0.15, "tier": 0.15}
    return {name: part for name, part in parts.items() if rng.random() < weights.get(name, 0.08)}


def _rule_limits(rng: Random, *, for_app: bool) -> Json:
    kind = rng.random()
    if kind < 0.5:
        return {"limit": "; ".join(_text(rng, 3) for _ in range(rng.choice((1, 1, 2))))}
    if kind < 0.6:
        return {"limits": [_text(rng, 3), _text(rng, 3)]}
    if kind < 0.8:
        tiers = rng.sample((*TIERS, "default"), rng.randint(1, 3))
        return {"limits": {tier: _text(rng, 3) for tier in tiers}}
    if kind < 0.9 or for_app:
        return {
            "algorithm": "token_bucket",
            "capacity": rng.choice((3, 12)),
            "refill_rate_per_sec": rng.choice((0.1, 1, 2.5)),
        }
    return {"shape": {"rate": "2/s", "queue": 3, "max_wait": rng.choice(("1s", "5s"))}}


def _rule_cost(rng: Random, *, for_app: bool) -> Any:
    costs: list[Any] = [
        1,
        2,
        {"default": 1, "endpoints": {"POST /api/**": 3, "/login": 2}},
        {"header": "x-cost", "max": 5},
    ]
    if for_app:
        costs.append({"default": 2, "after": {"header": "x-tokens", "max": 20}})
    return rng.choice(costs)


def _rule(rng: Random, number: int, *, for_app: bool) -> Json:
    rule: Json = {
        "id": f"rule-{number}",
        "key_by": "global" if rng.random() < 0.1 else _some(rng, KEYS),
        **_rule_limits(rng, for_app=for_app),
    }
    if match := _match(rng):
        rule["match"] = match
    optional: Json = {
        "cost": _rule_cost(rng, for_app=for_app),
        "mode": rng.choice(("shadow", "shadow", "off", "enforce")),
        "headers": rng.choice(("on", "redacted")),
    }
    odds = {"cost": 0.4, "mode": 0.25, "headers": 0.1}
    return rule | {name: value for name, value in optional.items() if rng.random() < odds[name]}


def _identity(rng: Random) -> Json:
    plans = {"key-1": "gold", "key-2": "free"}
    optional: Json = {
        "tier": rng.choice(
            (
                {"header": "x-tier", "default": "free"},
                {"lookup": "api_key", "values": plans, "default": "paid"},
            )
        ),
        "tenant": {"header": "x-tenant-id", "secret": rng.choice((True, False))},
        "ip": {
            "trusted_proxies": ["10.0.0.0/8"],
            "ipv4_prefix": rng.choice((24, 32)),
            "ipv6_prefix": rng.choice((48, 64)),
        },
        "fallback": rng.choice(("ip", "shared", "skip")),
    }
    return {name: value for name, value in optional.items() if rng.random() < 0.4}


def _policy(rng: Random, start: float, *, for_app: bool = False) -> Json:
    rules = [_rule(rng, number, for_app=for_app) for number in range(rng.randint(1, 4))]
    policy: Json = {"version": 1, "rules": rules}
    if identity := _identity(rng):
        policy["identity"] = identity
    if rng.random() < 0.3:
        critical = {"class": "critical", "match": {"endpoint": "/login"}}
        policy["priority"] = [critical, {"class": "sheddable", "match": {"tier": "free"}}]
    if rng.random() < 0.3:
        policy["overrides"] = _overrides(rng, rules, start)
    if rng.random() < 0.15:
        first = rules[0]
        rules.append(
            first | {"id": "candidate", "candidate_of": first["id"], "mode": "shadow"}
            if first.get("mode", "enforce") == "enforce"
            else first | {"id": "again"}
        )
    return policy


def _overrides(rng: Random, rules: list[Json], start: float) -> list[Json]:
    until = datetime.fromtimestamp(int(start) + rng.choice((5, 3600)), UTC)
    keys = ("ip=203.0.113.7", "ip=203.0.113.8", "method=GET", "global", "user_id=u1")
    change: Json = {"block": True} if rng.random() < 0.5 else {"extra": rng.choice((1, 10))}
    chosen = rng.sample(rules, rng.randint(1, len(rules)))
    return [
        {
            "rule": rule["id"],
            "key": rng.choice(keys),
            "until": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
            **change,
        }
        for rule in chosen
    ]


def _request(rng: Random) -> Json:
    """A request that no two servers read differently: no cookie twice, no encoded `#` or `?`."""
    headers: dict[str, Any] = {
        "x-api-key": rng.choice(("key-1", "key-2", "")),
        "X-User-Id": rng.choice(("u1", "u2")),
        "x-tenant-id": rng.choice(("acme", "a:b", "é")),
        "x-tier": rng.choice((*TIERS, "unknown")),
        "x-org": rng.choice(("acme", "umbrella", "other")),
        "x-forwarded-for": rng.choice(("198.51.100.1", "198.51.100.1, 203.0.113.9", "junk")),
        "x-cost": rng.choice(("0", "2", "50", "-1", "x")),
        "cookie": rng.choice(("sid=s1", "sid=s2; theme=dark", "theme=dark")),
        "idempotency-key": rng.choice(("i1", "i2")),
        "accept": rng.choice(("*/*", "application/json", "application/problem+json")),
    }
    sent = [[name, value] for name, value in headers.items() if rng.random() < 0.3]
    return {
        "method": rng.choice(("GET", "GET", "POST", "HEAD", "DELETE", "OPTIONS")),
        "path": rng.choice(PATHS),
        "host": rng.choice(HOSTS),
        "headers": sent,
        "peer": rng.choice(PEERS),
        "attributes": {"plan": "pro"} if rng.random() < 0.2 else {},
    }


def _policy_steps(rng: Random, count: int, start: float) -> list[list[Any]]:
    few = [_request(rng) for _ in range(4)]
    made: list[list[Any]] = []
    while len(made) < count:
        number = str(len(made))
        request = rng.choice(few) if rng.random() < 0.7 else _request(rng)
        cost = rng.choice((None, None, None, 0, 1, 4, {"rule-0": 2}))
        weighted: list[tuple[float, list[Any]]] = [
            (10, ["check", number, request, cost]),
            (2, ["peek", number, request, cost]),
            (1.5, ["reserve", number, request, cost or 1, rng.choice((2, 60))]),
            (
                1.5,
                ["settle", _name(rng, made, "reserve"), rng.choice((None, 0, 2, 9, {"rule-0": 1}))],
            ),
            (1, ["refund", _name(rng, made, "check", "reserve")]),
            (2, ["release", _name(rng, made, "check")]),
            (0.3, ["replace", _policy(rng, start)]),
        ]
        made.append(_moved(rng) or _chosen(rng, weighted))
    return made
