"""Who is guaranteed how many slots."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.errors import LimitError
from headgate.limits import Concurrency
from headgate.limits.scaling import with_extra


def test_shares_are_part_of_what_a_limit_is() -> None:
    limit = Concurrency(10, 60, (("gold", 4), ("free", 2)), "gold", lends=False)
    assert limit == Concurrency(10, 60.0, (("gold", 4), ("free", 2)), "gold", lends=False)
    assert hash(limit) != hash(Concurrency(10, 60))
    assert limit != Concurrency(10, 60, (("gold", 4), ("free", 2)), "free", lends=False)


def test_a_larger_limit_has_the_same_shares() -> None:
    limit = Concurrency(10, 60, (("gold", 10),), "gold")
    assert with_extra(limit, 5) == Concurrency(15, 60, (("gold", 10),), "gold")


@pytest.mark.parametrize(
    ("shares", "partition", "told"),
    [
        ([("gold", 1)], None, "expected such as"),
        ((("gold", 0),), None, "at least 1"),
        ((("gold", True),), None, "at least 1"),
        ((("gold", 1.0),), None, "at least 1"),
        ((("", 1),), None, "expected a name"),
        ((("a:b", 1),), None, "expected a name"),
        ((["gold", 1],), None, "expected a name"),
        (("gold",), None, "expected a name"),
        ((("gold", 1), ("gold", 2)), None, "two shares"),
        ((("gold", 6), ("free", 5)), None, "11 slots together; the limit has only 10"),
        (tuple((f"p{n}", 1) for n in range(33)), None, "at most 32"),
        ((("gold", 1),), "free", "expected one of gold"),
        ((), "gold", "expected such as"),
    ],
)
def test_shares_that_make_no_sense_are_refused(shares: Any, partition: Any, told: str) -> None:
    with pytest.raises(LimitError, match=told):
        Concurrency(10, 60, shares, partition)


def test_there_is_nothing_to_lend_without_shares() -> None:
    with pytest.raises(LimitError, match="shares"):
        Concurrency(10, 60, lends=False)
