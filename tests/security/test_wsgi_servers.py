"""No spelling of a request gives more than the limit: on gunicorn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.security.judging import GROUPS, check
from tests.support.security.targets import integration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.security.trial import Target


@pytest.fixture(scope="module", params=["wsgi", "flask", "django", "drf"])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with integration(request.param) as found:
        yield found


@pytest.mark.parametrize("group", GROUPS)
def test_no_spelling_gives_more_than_the_limit(target: Target, group: str) -> None:
    check(target, group)
