"""`headgate size`: the arithmetic, and what is rejected."""

from __future__ import annotations

import json

import pytest

from headgate.cli import main
from headgate.cli.size import COUNTER_BYTES, STORE_US, WORKER_US, Demand, fleet_for
from headgate.errors import OptionError


def test_the_figures_follow_from_what_is_asked() -> None:
    fleet = fleet_for(
        Demand(clients=10_000_000, checks=1_000_000, rules=2, way="rls", use=0.5, room=2)
    )
    assert fleet.counters == 20_000_000
    assert fleet.memory_bytes == 20_000_000 * COUNTER_BYTES * 2
    assert fleet.shards == 2 * STORE_US * 2
    assert fleet.workers == WORKER_US["rls"] * 2
    assert fleet.shard_bytes * fleet.shards >= fleet.memory_bytes


def test_there_is_always_one_shard_and_a_machine_to_spare() -> None:
    fleet = fleet_for(Demand(clients=1, checks=1))
    assert (fleet.shards, fleet.workers, fleet.machines) == (1, 1, 2)


def test_shares_are_exact_so_that_nothing_is_rounded_up_by_accident() -> None:
    demand = Demand(clients=1, checks=300_000, use=0.6, room=1.1, counter_bytes=10)
    fleet = fleet_for(demand)
    assert fleet.shards == 300_000 * STORE_US / 1_000_000 / 0.6
    assert fleet.memory_bytes == 11


@pytest.mark.parametrize(
    "wrong",
    [{"use": 0}, {"use": 1.1}, {"room": 0.5}, {"clients": 0}, {"checks": -1}],
)
def test_impossible_demands_are_rejected(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        Demand(**{"clients": 1, "checks": 1, **wrong})  # type: ignore[arg-type]  # some are wrong


@pytest.mark.parametrize(("text", "count"), [("1500", 1500), ("1.5k", 1500), ("2M", 2_000_000)])
def test_numbers_may_be_short(text: str, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "--clients", text, "--checks", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counters"] == count


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "1T", "1e6", ""])
def test_what_is_no_number_is_wrong_usage(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", f"--clients={text}", "--checks", "1"]) == 2
    assert "whole number" in capsys.readouterr().err
