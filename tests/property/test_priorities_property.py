"""The class of a request beside an oracle that tries every class on every reading of its path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from headgate.engine.request import Request
from headgate.policy.matcher import Classifier
from headgate.policy.model import (
    GLOBAL,
    PRIORITIES,
    Match,
    PriorityClass,
    Rule,
)
from headgate.policy.path import readings
from tests.property.test_matching_property import callers, fits, rule_fits
from tests.support.histories import examples

if TYPE_CHECKING:
    from headgate.engine.plan import Priority

matches = st.builds(
    Match,
    endpoints=st.lists(
        st.sampled_from(("/a", "/a/*", "/a/**", "/b", "/*/b", "/a/b")), max_size=2, unique=True
    ).map(tuple),
    methods=st.sampled_from(((), ("GET",), ("POST",))),
    tiers=st.sampled_from(((), (), ("free",))),
)
classes = st.lists(st.builds(PriorityClass, st.sampled_from(PRIORITIES), matches), max_size=8)
paths = st.lists(
    st.sampled_from(("/a", "/b", "/..", "/.", ";x", "%2fa", "/%61", "//", "\\b")), max_size=4
).map("".join)


def path_fits(one: PriorityClass, way: tuple[str, ...]) -> bool:
    patterns = [[part for part in each.split("/") if part] for each in one.match.endpoints]
    return not patterns or any(fits(pattern, list(way)) for pattern in patterns)


def expected(
    found: list[PriorityClass], request: Request, caller: dict[str, str | None]
) -> Priority:
    """The first that fits each reading, and of those the one that matters least."""
    fitting = [
        one for one in found if rule_fits(Rule("r", one.match, (GLOBAL,), {}), request, caller)
    ]
    each: list[Priority] = [
        next((one.priority for one in fitting if path_fits(one, way)), "default")
        for way in readings(request.path)
    ]
    return max(each, key=PRIORITIES.index)


@examples(150)
@given(classes, st.lists(paths, min_size=1, max_size=4), st.sampled_from(("GET", "POST")), callers)
def test_it_is_what_each_class_tried_on_each_reading_says(
    found: list[PriorityClass], asked: list[str], method: str, caller: dict[str, str | None]
) -> None:
    classifier = Classifier(found)
    for path in (*asked, *asked):
        request = Request(method, path)
        assert classifier.of(request, caller) == expected(found, request, caller)
