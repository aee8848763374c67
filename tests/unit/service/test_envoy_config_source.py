"""envoyproxy/ratelimit's configuration: what is valid comes into force, what is not stays out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headgate.config.service import Settings
from headgate.observability import METRICS
from headgate.policy.problems import PolicyError
from headgate.service.container import make_container
from headgate.service.sources import check_sources

if TYPE_CHECKING:
    from pathlib import Path

SHOP = "domain: shop\ndescriptors: []\n"


def settings(path: Path) -> Settings:
    return Settings(envoy_config=str(path), secret=b"x" * 32)


def test_all_files_of_the_directory_are_one_configuration(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(SHOP)
    (tmp_path / "bank.yml").write_text(SHOP.replace("shop", "bank"))
    (line,) = check_sources(settings(tmp_path))
    assert line.startswith(f"{tmp_path}: 2 domains")


def test_a_bad_one_at_the_start_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text("domain: shop\ndescriptors: 3\n")

    async def main() -> None:
        container = make_container(settings(tmp_path))
        try:
            with pytest.raises(PolicyError):
                await container.start()
        finally:
            await container.aclose()

    asyncio.run(main())


def test_what_is_new_is_applied_and_the_last_valid_one_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP)
    seen: list[tuple[set[str], float, float]] = []

    async def main() -> None:
        container = make_container(settings(tmp_path))
        assert container.envoy is not None
        errors = METRICS.value("policy_load_errors", what="envoy_config")
        loads = METRICS.value("policy_loads", what="envoy_config")
        try:
            for text in (SHOP, "domain: [", SHOP.replace("shop", "bank")):
                file.write_text(text)
                await asyncio.to_thread(container.envoy.check_now)
                assert container.core.envoy is not None
                failed = METRICS.value("policy_load_errors", what="envoy_config") - errors
                seen.append(
                    (set(container.core.envoy.domains), container.measures.rejected(), failed)
                )
            assert METRICS.value("policy_loads", what="envoy_config") - loads == 2
        finally:
            await container.aclose()

    asyncio.run(main())
    assert seen == [({"shop"}, 0, 0), ({"shop"}, 1, 1), ({"bank"}, 0, 1)]


def test_a_change_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP)

    async def main() -> None:
        container = make_container(settings(tmp_path))
        try:
            await container.start()
            file.write_text(SHOP.replace("shop", "bank"))
            container.reread()
            async with asyncio.timeout(10):
                while set(container.core.envoy.domains) != {"bank"}:  # type: ignore[union-attr] # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            await container.aclose()

    asyncio.run(main())
