"""envoyproxy/ratelimit's configuration: what is good comes into force, what is not stays out."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from headgate.policy.problems import PolicyError
from headgate.service.envoy_files import EnvoyFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headgate.policy.envoy_config import EnvoyConfig

SHOP = "domain: shop\ndescriptors: []\n"


def domains(applied: list[EnvoyConfig]) -> list[set[str]]:
    return [set(config.domains) for config in applied]


def test_all_files_of_the_directory_are_one_configuration(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SHOP)
    (tmp_path / "bank.yml").write_text(SHOP.replace("shop", "bank"))
    assert set(EnvoyFiles(str(tmp_path), lambda _: None).read().domains) == {"shop", "bank"}


def test_a_bad_one_at_the_start_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text("domain: shop\ndescriptors: 3\n")
    with pytest.raises(PolicyError):
        asyncio.run(EnvoyFiles(str(tmp_path), lambda _: None).start())


def test_checking_applies_what_is_new_and_keeps_the_last_good(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headgate.control")
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP)
    applied: list[EnvoyConfig] = []

    async def trial() -> None:
        files = EnvoyFiles(str(tmp_path), applied.append, interval=3_600)
        await files.start()
        await files.check()
        assert domains(applied) == [{"shop"}]
        file.write_text("domain: [")
        await files.check()
        await files.check()
        assert domains(applied) == [{"shop"}]
        file.write_text(SHOP.replace("shop", "bank"))
        await files.check()
        assert domains(applied) == [{"shop"}, {"bank"}]
        await files.aclose()

    asyncio.run(trial())
    told = [record.getMessage() for record in caplog.records]
    assert sum("cannot be put in force" in line for line in told) == 1


def test_a_change_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP)
    applied: list[EnvoyConfig] = []

    async def trial() -> None:
        files = EnvoyFiles(str(tmp_path), applied.append, interval=0.001)
        await files.start()
        file.write_text(SHOP.replace("shop", "bank"))
        await _until(lambda: len(applied) == 2)
        await files.aclose()

    asyncio.run(trial())
    assert domains(applied) == [{"shop"}, {"bank"}]


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
