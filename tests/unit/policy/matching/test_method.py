from __future__ import annotations

import pytest

from headgate.engine.request import Request
from headgate.policy.conditions import methods_of


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("GET", ("GET",)),
        ("post", ("POST",)),
        ("HEAD", ("HEAD", "GET")),
        ("Head", ("HEAD", "GET")),
        ("", ("",)),
    ],
)
def test_only_head_counts_as_another_method_too(method: str, expected: tuple[str, ...]) -> None:
    assert methods_of(Request(method=method)) == expected
