"""Expectations of the contracts that are known not to hold yet: a test that passes is an error."""

from __future__ import annotations

import pytest

_DEFECTS = {
    "test_an_idempotent_replay_has_the_figures_of_the_limit": (
        "the engine leaves a rule out of the check of a replay, so there are no figures"
    ),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of known defects."""
    for item in items:
        reason = _DEFECTS.get(getattr(item, "originalname", item.name))
        if reason is not None:
            item.add_marker(pytest.mark.xfail(strict=True, reason=reason))
