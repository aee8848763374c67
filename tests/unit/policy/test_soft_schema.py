"""The schema and the reader of what is soft: queues, slots, turns, classes and pressure."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.policy.limit_forms import Shape
from headgate.policy.loader import examine_policy_data, policy_to_data, read_policy_data
from headgate.policy.model import Adaptive, AdaptiveSlots, Fair, Pressure, PriorityClass
from headgate.policy.policy_document import ConcurrencyFields, policy_schema
from headgate.policy.tables import known_fields
from tests.examples import example_count
from tests.unit.policy.test_schema import ANYTHING, agree, each, limited, rule, validator

SHAPE_FIELDS = known_fields(Shape).names
CONCURRENCY_FIELDS = known_fields(ConcurrencyFields).names
FAIR_FIELDS = known_fields(Fair).names
PRIORITY_FIELDS = known_fields(PriorityClass).names
PRESSURE_FIELDS = known_fields(Pressure).names

GOOD_RULES: list[dict[str, Any]] = [
    limited(algorithm="leaky_queue", rate_per_sec=1.5, queue=5),
    limited(algorithm="leaky_queue", rate="5/m", max_wait="5s"),
    limited(limits=["5/s", {"algorithm": "leaky_queue", "rate": "5/s", "queue": 5}]),
    limited(limit="10/s peak 100/s for 30s"),
    rule(adaptive={"floor": "20%"}),
    *each("shape", {"rate": "10/s", "queue": 0}, {"rate": "1 per m", "max_wait": 5}, of=limited),
    *each("concurrency", 5, {"limit": 5}, {"limit": 5, "ttl": "1m", "lends": True}, of=limited),
    limited(concurrency={"limit": 5, "shares": {"a": "40%", "b": 2}, "share_by": "tier"}),
    limited(concurrency={"limit": 5, "reserve": {"critical": "40%", "default": "1%"}}),
    limited(
        limits={"a": [{"algorithm": "concurrency", "limit": 5, "ttl": 5, "shares": {"x": 5}}]},
        share_by="tenant",
        reserve={"critical": "5%"},
    ),
    *each("fair", {"slots": 5}, {"rate": "5/s", "queue": 0, "max_wait": 0}, of=limited),
    limited(fair={"slots": {"adaptive": "aimd"}, "weights": {"a": 1, "default": 1000}}),
    limited(fair={"slots": {"adaptive": "gradient", "min": 2, "max": 9, "target": "1s"}}),
    limited(fair={"slots": 5, "reserve": {"critical": "5%"}}),
]
GOOD_PRIORITIES: list[Any] = [
    [],
    [{"class": "critical"}],
    [{"class": "sheddable", "match": {"tier": "free"}}, {"class": "default", "match": {}}],
]
GOOD_PRESSURES: list[Any] = [
    {},
    {"latency": 0.5, "quantile": "99%", "errors": "0.1%", "queue": 0},
    {"queue": 5, "interval": "10ms", "backoff": "99%", "recovery": "100%", "least": "100%"},
]
GOOD: list[Any] = [
    *({"version": 1, "rules": [one]} for one in GOOD_RULES),
    *({"version": 1, "priority": one} for one in GOOD_PRIORITIES),
    *({"version": 1, "pressure": one} for one in GOOD_PRESSURES),
]

BAD_RULES: list[Any] = [
    rule(shape={"rate": "10/s", "queue": 5}),
    rule(concurrency=5),
    limited(shape={"rate": "10/s", "queue": 5}, fair={"slots": 5}),
    limited(algorithm="leaky_queue", rate_per_sec=1.5, rate="5/s", queue=5),
    limited(algorithm="leaky_queue", queue=5),
    limited(algorithm="gcra", burst=5, rate_per_sec=1, queue=5),
    *each(
        "shape", None, 5, {}, {"rate": "10/s"}, {"queue": 5}, {"rate": 5, "queue": 5}, of=limited
    ),
    *each("shape", {"rate": "10/s", "queue": -1}, {"rate": "x", "queue": 1}, of=limited),
    *each("concurrency", None, 0, "5", {}, {"limit": 0}, {"limit": 5, "slots": 5}, of=limited),
    *each("concurrency", {"limit": 5, "shares": {}}, {"limit": 5, "lends": 1}, of=limited),
    *each("concurrency", {"limit": 5, "shares": {"a": 0}, "share_by": "tier"}, of=limited),
    *each("concurrency", {"limit": 5, "shares": {"a b": 1}, "share_by": "tier"}, of=limited),
    *each("concurrency", {"limit": 5, "reserve": {"sheddable": "5%"}}, of=limited),
    *each("concurrency", {"limit": 5, "reserve": {"critical": 5}}, of=limited),
    limited(concurrency=5, reserve={"critical": "5%"}),
    limited(concurrency=5, share_by="tier"),
    *each("fair", None, {}, 5, {"slots": 0}, {"slots": 5, "rate": "5/s"}, {"rate": 5}, of=limited),
    *each("fair", {"slots": {}}, {"slots": {"adaptive": "x"}}, {"slots": {"min": 1}}, of=limited),
    *each("fair", {"slots": 5, "weights": {}}, {"slots": 5, "weights": {"a": 0}}, of=limited),
    limited(fair={"rate": "5/s", "reserve": {"critical": "5%"}}),
    limited(fair={"slots": 5}, reserve={"critical": "5%"}),
    *each("adaptive", None, True, {}, {"floor": 0.2}, {"floor": "0%"}, {"least": "5%"}),
]
BAD_PRIORITIES: list[Any] = [
    None,
    {},
    ["critical"],
    [{}],
    [{"class": "important"}],
    [{"match": {}}],
    [{"class": "critical", "match": {"path": "/x"}}],
    [{"class": "critical", "endpoint": "/x"}],
]
BAD_PRESSURES: list[Any] = [
    None,
    [],
    True,
    {"latency": 0},
    {"quantile": 0.9},
    {"errors": "101%"},
    {"queue": -1},
    {"delay": "5s"},
    {"backoff": 0.5},
]
BAD: list[Any] = [
    *({"version": 1, "rules": [one]} for one in BAD_RULES),
    *({"version": 1, "priority": one} for one in BAD_PRIORITIES),
    *({"version": 1, "pressure": one} for one in BAD_PRESSURES),
]
ONLY_THE_READER: list[Any] = [
    {"version": 1, "rules": [one]}
    for one in (
        rule(reserve={"critical": "5%"}),
        limited(concurrency={"limit": 5, "shares": {"a": 2}}),
        limited(concurrency={"limit": 5, "shares": {"a": 6}, "share_by": "tier"}),
        limited(concurrency={"limit": 5, "shares": {"a": 2}, "share_by": "api_key"}),
        limited(concurrency={"limit": 5, "reserve": {"critical": "60%", "default": "40%"}}),
        limited(fair={"slots": {"adaptive": "aimd", "min": 9, "max": 3}}),
        limited(fair={"slots": 5}, cost={"after": {"bytes": True}}),
        limited(algorithm="leaky_queue", rate_per_sec=5),
    )
]
ONLY_THE_READER += [
    {"version": 1, "pressure": {"interval": "1ms"}},
    {"version": 1, "pressure": {"errors": "100%"}},
]


@pytest.mark.parametrize("data", GOOD, ids=str)
def test_both_accept_what_is_good(data: Any) -> None:
    assert [error.message for error in validator().iter_errors(data)] == []
    assert examine_policy_data(data).policy is not None, examine_policy_data(data).problems


@pytest.mark.parametrize("data", BAD, ids=lambda data: str(data)[:100])
def test_both_refuse_what_is_bad(data: Any) -> None:
    assert not validator().is_valid(data)
    assert examine_policy_data(data).policy is None


@pytest.mark.parametrize("data", ONLY_THE_READER, ids=str)
def test_the_reader_knows_more(data: Any) -> None:
    assert validator().is_valid(data)
    assert examine_policy_data(data).policy is None


@pytest.mark.parametrize("data", GOOD, ids=str)
def test_what_a_policy_is_written_as_fits_the_schema(data: Any) -> None:
    written = policy_to_data(read_policy_data(data))
    assert [error.message for error in validator().iter_errors(written)] == []


def test_it_names_exactly_the_fields_that_the_reader_knows() -> None:
    parts = policy_schema()["$defs"]
    for model in (
        Shape,
        ConcurrencyFields,
        Fair,
        AdaptiveSlots,
        Adaptive,
        PriorityClass,
        Pressure,
    ):
        assert tuple(parts[model.__name__]["properties"]) == known_fields(model).names


SOFT = (
    ("shape", {"rate": "5/s", "queue": 5}, SHAPE_FIELDS),
    ("concurrency", {"limit": 5}, CONCURRENCY_FIELDS),
    ("fair", {"slots": 5}, FAIR_FIELDS),
    ("fair", {"rate": "5/s"}, FAIR_FIELDS),
)


@settings(max_examples=example_count(200))
@given(st.sampled_from(SOFT), st.data(), ANYTHING)
def test_they_agree_on_what_is_soft_with_anything_in_a_field(
    soft: tuple[str, dict[str, Any], tuple[str, ...]], data: st.DataObject, value: Any
) -> None:
    name, good, fields = soft
    field = data.draw(st.sampled_from(fields))
    agree({"version": 1, "rules": [limited(**{name: good | {field: value}})]})


@settings(max_examples=example_count(100))
@given(st.sampled_from(PRESSURE_FIELDS), st.sampled_from(PRIORITY_FIELDS), ANYTHING)
def test_they_agree_on_priority_and_pressure_with_anything_in_a_field(
    pressing: str, classing: str, value: Any
) -> None:
    agree({"version": 1, "pressure": {pressing: value}})
    agree({"version": 1, "priority": [{"class": "critical", classing: value}]})
