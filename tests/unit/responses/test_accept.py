"""Who is asking for problem details."""

from __future__ import annotations

import pytest

from headgate.responses import prefers_problem

ASKING = [
    "application/problem+json",
    "Application/Problem+JSON ; Q=0.5",
    "application/json, application/problem+json",
    "application/problem+json, */*;q=0.1",
    "application/problem+json;q=0.9, application/json;q=0.8",
    'text/html;level="1, 2", application/problem+json',
    'application/problem+json;profile="a;q=0"',
    "application/json;q=0, application/*",
    "application/json;q=0.1, */*",
    "application/problem+json;q=0, application/problem+json",
    "application/json;q=oops, application/problem+json;q=0.001",
]

NOT_ASKING = [
    None,
    "",
    "*/*",
    "application/*",
    "text/html,application/xhtml+xml,*/*;q=0.8",
    "application/json",
    "application/json, application/problem+json;q=0.9",
    "application/problem+json;q=0",
    "application/problem+json;q=0.000",
    "application/problem+json;q=0.5, */*",
    "application/problem+json;q=2",
    "application/problem+json;q=-1",
    "application/problem+json;q=nan",
    "application/problem+json;q=\N{ARABIC-INDIC DIGIT ONE}",
    "application/problem+json;q=",
    "application/problem+xml",
    'text/x;note="application/problem+json',
    ",;,q=1;application",
]


@pytest.mark.parametrize("accept", ASKING)
def test_who_names_it_and_likes_nothing_better_gets_it(accept: str) -> None:
    assert prefers_problem(accept)


@pytest.mark.parametrize("accept", NOT_ASKING)
def test_all_others_get_plain_json(accept: str | None) -> None:
    assert not prefers_problem(accept)
