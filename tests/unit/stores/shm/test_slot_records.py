"""Slots as bytes: whose they are, and what is claimed."""

from __future__ import annotations

import json

import pytest

from headgate.algorithms.concurrency import Claim, Lease, Slots
from headgate.limits import Concurrency
from headgate.stores.shm.records import JSON, Entry, Records, prefix

PLAIN = Concurrency(5, 60)
SHARED = Concurrency(5, 60, tuple((f"{'part' * 20}{n}", 1) for n in range(5)))
SLOTS = Slots({"a": Lease(7, "gold"), "b": Lease(9, None)}, {"gold": Claim(2, 10**18, 5)})


def test_slots_are_read_as_they_were_written_whatever_the_shares() -> None:
    records = Records(0)
    for limit in (PLAIN, SHARED):
        algorithm, entry = records.read(records.write(limit, Entry(SLOTS, {})))
        assert entry == Entry(SLOTS, {})
        assert algorithm.limit == PLAIN, "the slots do not depend on whose they are"
        assert records.kept(limit).algorithm.limit == limit


@pytest.mark.parametrize(
    "state",
    [[], [{}], [{}, {}], [{"a": 7}, {}, {}], [{"a": [7]}, {}, {}], [{}, {"g": [-1, 1, 1]}, {}]],
)
def test_slots_that_make_no_sense_are_told(state: object) -> None:
    record = prefix(PLAIN, JSON) + json.dumps([state, {}]).encode()
    with pytest.raises(ValueError, match=r"\w"):
        Records(0).read(record)
