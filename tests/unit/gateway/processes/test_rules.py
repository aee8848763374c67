"""The policy that Envoy is configured by, and what is told of the ways to decide."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from headgate.control import FileSource
from headgate.gateway.processes.configuration import ActivePolicy
from headgate.policy.problems import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RULES = "version: 1\nrules:\n  - {id: per-ip, key_by: ip, limit: 5/hour}\n"


@pytest.fixture(autouse=True)
def _heard(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    logger = logging.getLogger("headgate")
    before, logger.propagate = logger.propagate, True
    caplog.set_level(logging.DEBUG, "headgate.gateway")
    yield
    logger.propagate = before


def _storage(path: Path) -> FileSource:
    return FileSource(path, read_only=True, interval=0.001, pause=lambda _: None)


def test_rules_are_followed_and_wrong_ones_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)

    async def main() -> list[str]:
        rules = ActivePolicy(_storage(path))
        await rules.start()
        assert not rules.changed.is_set()
        path.write_text(RULES.replace("per-ip", "wrong").replace("5/hour", "nonsense"))
        path.write_text(RULES.replace("per-ip", "other"))
        async with asyncio.timeout(60):
            await rules.changed.wait()
        await rules.aclose()
        assert rules.policy is not None
        return [rule.id for rule in rules.policy.rules]

    assert asyncio.run(main()) == ["other"]
    assert not caplog.records  # the service says it


def test_wrong_rules_at_the_start_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES.replace("limit", "limt"))

    async def main() -> None:
        rules = ActivePolicy(_storage(path))
        try:
            await rules.start()
        finally:
            await rules.aclose()

    with pytest.raises(PolicyError, match="did you mean 'limit'"):
        asyncio.run(main())


def test_rules_that_may_come_later_are_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rules.yaml"

    async def main() -> None:
        rules = ActivePolicy(_storage(path), may_arrive_later=True)
        starting = asyncio.create_task(rules.start())
        while "waiting for a policy" not in caplog.text:  # noqa: ASYNC110 - a log tells nobody
            await asyncio.sleep(0.001)
        path.write_text(RULES.replace("limit", "limt"))
        while "did you mean 'limit'" not in caplog.text:  # noqa: ASYNC110 - a log tells nobody
            await asyncio.sleep(0.001)
        path.write_text(RULES)
        async with asyncio.timeout(60):
            await starting
        assert rules.policy is not None
        await rules.aclose()

    asyncio.run(main())
