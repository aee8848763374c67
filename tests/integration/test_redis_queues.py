"""A queue in Redis, worked off by a fleet, on the server's own clock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from headgate.limits import LeakyQueue
from headgate.stores.operations import CancelQueued, Check, Take
from headgate.stores.redis import RedisStore
from tests.support.servers import ClusterSetup, RedisServer, is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not is_installed(), reason="run scripts/install-servers")

QUEUE = LeakyQueue(rate=Fraction(3, 100), queue=400)
"""So slow that nobody's turn comes while the others line up, however slow they are."""
UNIT_NS = 33_333_333_000
MEMBERS, EACH = 4, 20


@pytest.fixture(scope="module", params=["one server", "a cluster"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    setup = RedisServer() if request.param == "one server" else ClusterSetup()
    with setup as servers:
        yield servers.url


def takes(url: str, group: str) -> list[int]:
    """The turns that one member of the fleet is given; it gives every fifth of them up."""
    store, check = RedisStore(url), Check(group, "key", QUEUE)
    kept = []
    try:
        for n in range(EACH):
            (outcome,) = store.run(Take((check,)))
            assert outcome.allowed
            if n % 5 != 4 or not store.run(CancelQueued((check,), (outcome.place_ns,))):
                kept.append(outcome.place_ns)
    finally:
        store.close()
    return kept


def test_no_two_members_of_a_fleet_have_the_same_turn(url: str) -> None:
    with ThreadPoolExecutor(MEMBERS) as fleet:
        kept = [turn for turns in fleet.map(takes, [url] * MEMBERS, ["fleet"] * MEMBERS)
                for turn in turns]  # fmt: skip
    assert kept.count(0) <= 1, "only the first need not wait"
    later = sorted(turn for turn in kept if turn)
    assert all(second - first >= UNIT_NS for first, second in pairwise(later))
    assert len(kept) == MEMBERS * EACH - MEMBERS * EACH // 5
    # Nothing that was given up is lost, as far as others came after: the turns are without a gap
    # but for what the very last ones left.
    assert later[-1] - later[0] <= (len(later) + MEMBERS) * (UNIT_NS + 1_000)
