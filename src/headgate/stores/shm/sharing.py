"""What several processes of a host make of the same thing.

It is kept as reservations of a counter that nothing is ever charged to: those have a name, in which
all that is told stands, and lapse by themselves.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from headgate.algorithms.holds import Hold
from headgate.limits import FixedWindow
from headgate.stores.operations import MOST_ORIGINS
from headgate.stores.shm.records import Entry

if TYPE_CHECKING:
    from headgate.stores.operations import Share, Shared
    from headgate.stores.shm.transaction import Transaction

_KEPT_UNDER: Final = FixedWindow(1, 1)
"""Some limit: every counter has one."""


def share(operation: Share, transaction: Transaction) -> Shared:
    """Carry *operation* out. A cell that other things share has all that is told of them too."""
    group, key, origin = f"told of {operation.group}", operation.key, operation.origin
    spot = transaction.spot(group, key, _KEPT_UNDER)
    state, holds = transaction.load(spot, _KEPT_UNDER)
    told: dict[str, tuple[str, float, float]] = {}
    places: dict[str, str] = {}
    for name, hold in holds.items():
        match _read(name):
            case [
                its_group,
                its_key,
                str() as who,
                float() as value,
                float() as weight,
                int(lasts),
            ] if its_group == group and its_key == key:
                places[who] = name
                # What lapses later was told before the clock was set back.
                if hold.expires_ns <= transaction.now + 2 * lasts:
                    told[who] = who, value, weight
            case _:
                continue  # of another thing, or damaged
    if operation.weight > 0 and (origin in told or len(told) < MOST_ORIGINS):
        told[origin] = origin, float(operation.value), float(operation.weight)
        kept = {name: hold for name, hold in holds.items() if name != places.get(origin)}
        name = json.dumps([group, key, *told[origin], operation.ttl_ns], separators=(",", ":"))
        kept[name] = Hold(1, transaction.now + operation.ttl_ns)
        transaction.put(spot, _KEPT_UNDER, Entry(state, kept))
    return tuple(told.values())


def _read(name: str) -> object:
    try:
        return json.loads(name)
    except ValueError:
        return None
