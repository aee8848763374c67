"""The example of an overload runs, and its table says what docs/overload.md says of it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from headgate.testing import run_virtually

EXAMPLE = Path(__file__).parents[2] / "examples" / "overload.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


def test_without_a_rule_hardly_anybody_is_answered_in_time(example: dict[str, Any]) -> None:
    found = run_virtually(example["play"](example["RULES"]["no rule"]))
    assert sum(found.answered.values()) < 0.1 * sum(found.sent.values())


def test_by_priority_payments_are_answered_and_the_export_goes_without(
    example: dict[str, Any],
) -> None:
    found = run_virtually(example["play"](example["RULES"]["the same, by priority"]))
    shares = {path: found.answered[path] / found.sent[path] for path in found.sent}
    assert shares["/pay"] > 0.9 > shares["/basket"] > shares["/search"] > shares["/export"]
    assert set(found.statuses) == {200, 503}


def test_it_prints_a_line_for_each_rule(
    example: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    main = example["main"]
    main.__globals__.update(SECONDS=2, HALVED=1)
    main()
    printed = capsys.readouterr().out
    assert all(f"\n{name} " in printed for name in example["RULES"])
