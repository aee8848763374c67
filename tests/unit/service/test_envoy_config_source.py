"""envoyproxy/ratelimit's configuration: what is valid comes into force, what is not stays out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headgate.config.service import Settings
from headgate.observability import MEASURES
from headgate.policy.problems import PolicyError
from headgate.service.container import make_parts
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
        parts = make_parts(settings(tmp_path))
        try:
            with pytest.raises(PolicyError):
                await parts.start()
        finally:
            await parts.aclose()

    asyncio.run(main())


def test_what_is_new_is_applied_and_the_last_valid_one_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP)
    seen: list[tuple[set[str], float, float]] = []

    async def main() -> None:
        parts = make_parts(settings(tmp_path))
        assert parts.envoy is not None
        errors = MEASURES.value("policy_load_errors", what="envoy_config")
        try:
            for text in (SHOP, "domain: [", SHOP.replace("shop", "bank")):
                file.write_text(text)
                await asyncio.to_thread(parts.envoy.check_now)
                assert parts.core.envoy is not None
                failed = MEASURES.value("policy_load_errors", what="envoy_config") - errors
                seen.append((set(parts.core.envoy.domains), parts.measures.refused(), failed))
        finally:
            await parts.aclose()

    asyncio.run(main())
    assert seen == [({"shop"}, 0, 0), ({"shop"}, 1, 1), ({"bank"}, 0, 1)]


def test_a_change_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP)

    async def main() -> None:
        parts = make_parts(settings(tmp_path))
        try:
            await parts.start()
            file.write_text(SHOP.replace("shop", "bank"))
            parts.reread()
            async with asyncio.timeout(10):
                while set(parts.core.envoy.domains) != {"bank"}:  # type: ignore[union-attr] # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            await parts.aclose()

    asyncio.run(main())
