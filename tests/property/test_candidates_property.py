"""A candidate changes nothing for anybody: not in an answer over HTTP, nor in one to Envoy."""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.policy.loader import read_policy_data
from headgate.service.http import HttpApp
from headgate.service.rls import RlsOptions
from headgate.testing import ManualClock
from tests.examples import example_count
from tests.support.http_app import Answer, FakeStore, ask, core_of
from tests.support.rls_client import NOON, Asker, Desc, DistantStore, codes_of, desc, request

_LIMITS = st.sampled_from(
    ("4/m", "3/m", "2/m burst 4; 9/h", "5/m sliding_window_log", "4/h fixed_window", "3/m gcra")
)
_LIMITED = st.one_of(
    st.fixed_dictionaries({"limit": _LIMITS}),
    st.fixed_dictionaries({"limits": st.fixed_dictionaries({"free": _LIMITS, "paid": _LIMITS})}),
)
_REST = st.fixed_dictionaries(
    {"key_by": st.sampled_from(("user_id", ["user_id", "endpoint"]))},
    optional={
        "match": st.sampled_from(({"endpoint": "/a"}, {"tier": "free"})),
        "cost": st.sampled_from((0, 2, {"endpoints": {"/a": 3}, "default": 1})),
        "idempotency": st.just(value=True),
        "headers": st.sampled_from(("off", "redacted")),
        "on_store_failure": st.sampled_from(("fail_closed", "local")),
    },
)
_RULES = st.builds(lambda limited, rest: limited | rest, _LIMITED, _REST)
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(("check", "authorize", "reserve", "standing")),
        st.sampled_from("uv"),
        st.sampled_from(("/a", "/b")),
        st.integers(0, 3),
        st.sampled_from(("free", "paid")),
    ),
    max_size=12,
)
_ENDS = st.integers(0, 24)
"""How many steps the store is there for. It does not come back: when it is asked again is chance,
and so are figures while it is gone, as then real time passes."""
_GRANTS = st.lists(st.sampled_from(("extra", "block")), max_size=1)
_IDENTITY = {"tier": {"header": "x-tier", "default": "free"}}


def _policies(live: Any, other: Any, trial: Any, grants: list[str]) -> tuple[Any, Any]:
    """Without a candidate, and with it."""
    rules = [{**live, "id": "live"}, {**other, "id": "other"}]
    tried = {**trial, "id": "live-candidate", "mode": "shadow", "candidate_of": "live"}
    until = {"rule": "live", "key": "user_id=u", "until": "2999-01-01T00:00:00Z"}
    given = [{**until, **({"extra": 2} if one == "extra" else {"block": True})} for one in grants]
    policy = {"version": 1, "identity": _IDENTITY, **({"overrides": given} if given else {})}
    if given and live["key_by"] != "user_id":
        del policy["overrides"]
    return {**policy, "rules": rules}, {**policy, "rules": [*rules, tried]}


class _Told(NamedTuple):
    status: int
    lines: list[tuple[str, str]]
    body: object


def _told(answer: Answer) -> _Told:
    """What is in an answer, but for what the code that enforces is told of rules in shadow."""
    aside = ("content-length", "location")
    lines = sorted(line for line in answer.lines if line[0] not in aside)
    if not answer.body.startswith(b"{"):
        return _Told(answer.status, lines, answer.body)
    body = answer.json
    body.pop("id", None)
    if "charged" in body:
        body["charged"].pop("live-candidate", None)
    if isinstance(body.get("rules"), list):
        body["rules"] = [one for one in body["rules"] if one.get("mode") != "shadow"]
    return _Told(answer.status, lines, body)


class _Node:
    """A service with *policy*."""

    def __init__(self, policy: Any, clock: ManualClock) -> None:
        self.store = FakeStore(clock)
        self.store.is_undone = True  # or it would matter when the store is given a rest
        self.app = HttpApp(core_of(json.dumps(policy), clock=clock, store=self.store))

    def post(self, path: str, body: Any = None) -> Answer:
        sent = b"" if body is None else json.dumps(body).encode()
        return ask(self.app, "POST", path, [("content-type", "application/json")], sent)

    def answers(self, kind: str, asked: dict[str, Any], amount: int) -> list[_Told]:
        if kind == "authorize":
            headers = list(asked["headers"].items())
            return [_told(ask(self.app, "GET", f"/v1/authorize{asked['path']}", headers))]
        if kind == "standing":
            headers = list(asked["headers"].items())
            return [_told(ask(self.app, "GET", "/v1/rate_limit", headers))]
        if kind != "reserve":
            return [_told(self.post("/v1/check", asked | ({"cost": amount} if amount else {})))]
        made = self.post("/v1/reservations", asked | {"cost": {"live": amount + 1}})
        if made.status != 201:
            return [_told(made)]
        commit = f"/v1/reservations/{made.json['id']}/commit"
        return [_told(made), _told(self.post(commit, {"cost": {"live": amount}}))]


@settings(max_examples=example_count(40), deadline=None)
@given(_RULES, _RULES, _RULES, _GRANTS, _STEPS, _ENDS)
def test_answers_over_http_are_the_same(
    live: Any, other: Any, trial: Any, grants: list[str], steps: list[Any], ends: int
) -> None:
    clock = ManualClock(NOON)
    with patch("headgate.rule_engine.time.time_ns", clock):  # by which overrides end
        nodes = [_Node(policy, clock) for policy in _policies(live, other, trial, grants)]
    for number, (kind, user, path, amount, tier) in enumerate(steps):
        key = {"idempotency-key": f'"{number // 2}"'}
        asked = {"path": path, "headers": {"x-user-id": user, "x-tier": tier, **key}}
        for node in nodes:
            node.store.is_gone = number >= ends
        without, beside = (node.answers(kind, asked, amount) for node in nodes)
        if number < ends:
            assert without == beside
        else:
            assert [one.status for one in without] == [one.status for one in beside]
        clock.advance(amount * 5)


_DESCRIPTORS = st.lists(
    st.builds(
        lambda user, path, hits: desc(f"user_id={user}", f"endpoint={path}", hits=hits),
        st.sampled_from("uv"),
        st.sampled_from(("/a", "/b")),
        st.sampled_from((None, 0, 2)),
    ),
    min_size=1,
    max_size=2,
)


@settings(max_examples=example_count(60), deadline=None)
@given(
    _RULES,
    _RULES,
    _RULES,
    _GRANTS,
    st.lists(st.tuples(_DESCRIPTORS, st.integers(0, 3)), max_size=10),
    st.none() | _ENDS,
)
def test_answers_to_envoy_are_the_same(
    live: Any,
    other: Any,
    trial: Any,
    grants: list[str],
    calls: list[tuple[list[Desc], int]],
    ends: int | None,
) -> None:
    clock = ManualClock(NOON)
    stores = [None if ends is None else DistantStore(clock) for _ in range(2)]
    with patch("headgate.rule_engine.time.time_ns", clock):
        askers = [
            Asker(
                read_policy_data(policy),
                options=RlsOptions(headers=True, metadata=True),
                clock=clock,
                store=store,
            )
            for policy, store in zip(_policies(live, other, trial, grants), stores, strict=True)
        ]
    for number, (descriptors, tens) in enumerate(calls):
        is_gone = ends is not None and number >= ends
        for store in stores:
            if store is not None:
                store.is_gone = is_gone
        one, two = (asker.ask("edge", *descriptors) for asker in askers)
        if is_gone:
            assert codes_of(one) == codes_of(two), request("edge", *descriptors)
        else:
            assert one == two, request("edge", *descriptors)
        clock.advance(tens * 10)
