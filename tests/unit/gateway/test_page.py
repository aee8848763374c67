"""The page about the gateway, and what the README says of it, say what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headgate.config import gather_values
from headgate.config.gateway import SETTINGS as GATEWAY
from headgate.config.service import SETTINGS as SERVICE
from headgate.gateway.demo import introduction
from headgate.policy.loader import read_policy

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "gateway.md").read_text("utf-8")
OTHERS = [(ROOT / name).read_text("utf-8") for name in ("README.md", "docs/deploy.md")]


def _blocks(text: str) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)


POLICIES = [one for one in _blocks("".join([PAGE, *OTHERS])) if one.startswith("version:")]
CONFIGS = [block for block in _blocks(PAGE) if block not in POLICIES]


def test_every_setting_and_flag_that_is_named_exists() -> None:
    known = {one.flag for one in (*GATEWAY, *SERVICE)} | {"--config", "--check", "--json"}
    of_envoy = re.sub(r"`(?:envoy|curl) --[^`]*`", "", PAGE)
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", of_envoy)) <= known
    names = {one.name for one in (*GATEWAY, *SERVICE)}
    named = re.findall(r"`((?:client|upstream|listen|envoy|gateway|decision)_[a-z_]+)`", PAGE)
    assert set(named) <= names


@pytest.mark.parametrize("policy", POLICIES)
def test_its_policies_can_be_read(policy: str) -> None:
    assert read_policy(policy).rules


@pytest.mark.parametrize("config", CONFIGS)
def test_its_configurations_can_be_read(config: str, tmp_path: Path) -> None:
    file = tmp_path / "headgate.yaml"
    file.write_text(config)
    settings = (*GATEWAY, *SERVICE)
    flags = dict.fromkeys(one.name for one in settings)
    values = gather_values(settings, flags=flags, variables={}, config=str(file)).values
    assert values["upstream"]


def test_what_the_demo_says_is_what_it_says() -> None:
    [shown] = re.findall(r"```text\n(headgate is up.*?)\.\.\.\n```", PAGE, re.DOTALL)
    [token] = re.findall(r"admin token  (\S+)", shown)
    [rules] = re.findall(r"rules        (\S+)", shown)
    said = introduction(
        gateway="http://127.0.0.1:8080",
        service="http://127.0.0.1:8090",
        token=token,
        rules=rules,
        is_temporary=True,
    )
    assert said.startswith(shown)


def test_there_is_something_to_read() -> None:
    assert POLICIES
    assert CONFIGS
