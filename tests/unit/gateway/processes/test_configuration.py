"""Envoy's files kept in step with the rules: what is written, what is told."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

import pytest

from headgate.config.gateway import GatewaySettings, parse_upstream
from headgate.gateway.envoy.values import Places
from headgate.gateway.processes.configuration import Configuration
from headgate.gateway.processes.envoy import Acceptance, Envoy
from headgate.gateway.processes.logs import GatewayError, TemporaryError
from headgate.gateway.processes.run_directory import RunDirectory
from headgate.policy.loader import read_policy
from tests.support.envoy_admin import FakeAdmin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headgate.gateway.envoy.values import Documents
    from headgate.policy.model import Policy

LDS = "listener_manager.lds"
_RULE = "{id: a, match: {endpoint: /a}, key_by: ip, limit: 5/hour}"


@pytest.fixture(autouse=True)
def _heard(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    logger = logging.getLogger("headgate")
    before, logger.propagate = logger.propagate, True
    caplog.set_level(logging.DEBUG, "headgate.gateway")
    yield
    logger.propagate = before


def _policy(*rules: str) -> Policy:
    return read_policy(f"version: 1\nrules: [{', '.join(rules)}]\n")


class _Examined(Envoy):
    """An Envoy that says *refusal* to a configuration, if that is not None."""

    refusal: GatewayError | None = None

    async def check(self, made: Documents) -> None:
        if self.refusal is not None:
            raise self.refusal


def _made(tmp_path: Path, *pages: dict[str, int]) -> tuple[Configuration, _Examined]:
    directory = RunDirectory(tmp_path)
    settings = GatewaySettings(upstream=(parse_upstream("http://127.0.0.1:9000"),))
    envoy = _Examined("/bin/envoy", settings, directory)
    envoy.admin = FakeAdmin(*pages)
    places = Places(str(tmp_path), ("/run/grpc.sock",), "/run/admin.sock")
    made = Configuration(settings, places, directory, envoy)
    made._acceptance = Acceptance(envoy.admin, timeout=0.0)
    return made, envoy


def _texts(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_everything_is_there_before_envoy_starts(tmp_path: Path) -> None:
    made, _ = _made(tmp_path, {})
    made.begin(_policy(_RULE))
    found = _texts(tmp_path)
    assert {"bootstrap.json", "listeners.json"} < set(found)
    assert "9000" in json.dumps(json.loads(found["bootstrap.json"]))


def test_a_change_of_the_rules_is_written_and_what_is_left_over_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, _ = _made(tmp_path, {f"{LDS}.update_success": 1}, {f"{LDS}.update_success": 2})
    made.begin(_policy(_RULE))
    before = _texts(tmp_path)
    asyncio.run(made.renew(_policy(_RULE)))
    assert _texts(tmp_path) == before
    asyncio.run(made.renew(_policy()))
    after = _texts(tmp_path)
    assert set(after) < set(before)  # its filter is gone
    assert after["bootstrap.json"] == before["bootstrap.json"]
    assert not caplog.records


def test_what_envoy_refuses_after_all_is_one_line_and_put_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, envoy = _made(tmp_path, {f"{LDS}.update_rejected": 0}, {f"{LDS}.update_rejected": 1})
    made.begin(_policy(_RULE))
    before = _texts(tmp_path)
    envoy.log.last_error = "no such thing"
    asyncio.run(made.renew(_policy(_RULE.replace("id: a", "id: b, decide: local"))))
    told = "Envoy rejects revision 0 and keeps the policy before"
    assert _errors(caplog) == [f"{told} ({LDS}): no such thing"]
    assert _texts(tmp_path) == before


def test_what_envoy_would_refuse_is_not_put_before_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, envoy = _made(tmp_path, {f"{LDS}.update_success": 1}, {f"{LDS}.update_success": 2})
    made.begin(_policy(_RULE))
    before = _texts(tmp_path)
    envoy.refusal = GatewayError("Envoy rejects the configuration: no such field")
    for _ in range(2):
        asyncio.run(made.renew(_policy()))
    assert _texts(tmp_path) == before
    told = "Envoy keeps the policy before: Envoy rejects the configuration: no such field"
    assert _errors(caplog) == [told]
    assert not made.is_behind
    envoy.refusal = None
    asyncio.run(made.renew(_policy()))
    assert _texts(tmp_path) != before


def test_what_cannot_be_written_leaves_envoy_as_it_was_and_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = _made(tmp_path, {f"{LDS}.update_success": 1}, {f"{LDS}.update_success": 2})
    made.begin(_policy(_RULE))
    before = _texts(tmp_path)

    def full(*_: object) -> None:
        raise TemporaryError("listeners.json: cannot be written: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(RunDirectory, "write_all", full)
        for _ in range(2):
            asyncio.run(made.renew(_policy()))
            assert made.is_behind
    assert len(_errors(caplog)) == 1
    assert "Envoy keeps the policy before: listeners.json" in caplog.text
    assert _texts(tmp_path) == before
    asyncio.run(made.renew(_policy()))
    assert not made.is_behind
    assert _texts(tmp_path) != before


def _errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]


def test_a_rule_that_is_not_decided_as_it_asks_is_reported_once_for_each_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    configuration, _ = _made(tmp_path)
    local = "{id: b, key_by: user, decide: local, limit: 5/hour}"
    plain = f"identity: {{user: {{cookie: session}}}}\nversion: 1\nrules: [{_RULE}"
    other, alone = read_policy(f"{plain}, {local}]\n"), read_policy(f"{plain}]\n")
    for policy, count in ((other, 1), (other, 1), (alone, 1), (other, 2)):
        configuration.begin(policy)
        messages = [record.getMessage() for record in caplog.records]
        reported = [one for one in messages if one.startswith("rule b: decided exact instead")]
        assert len(reported) == count
