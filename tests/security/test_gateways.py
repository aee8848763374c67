"""No spelling of a request gives more than the limit: behind gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.security.judging import GROUPS, check
from tests.support.security.targets import GATEWAYS, gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.security.trial import Target


@pytest.fixture(scope="module", params=GATEWAYS)
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    with gateway(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found


@pytest.mark.parametrize("group", GROUPS)
def test_no_spelling_gives_more_than_the_limit(target: Target, group: str) -> None:
    check(target, group)
