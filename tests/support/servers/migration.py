"""A slot of a cluster on its way from one node to another."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.support.servers.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.servers.server import RedisServer

_ITEM = re.compile(r'^\d+\) (".*")$', re.MULTILINE)
_MANY = "1000000"


class Migration:
    """The move of *slot* from *source* to *target*, step by step, as `redis-cli` would do it.

    Until `finish`, the source answers for the keys that it still has and sends clients on to the
    target with ASK for all others, new ones too. Keys may hold any bytes.
    """

    def __init__(
        self,
        slot: int,
        source: RedisServer,
        target: RedisServer,
        primaries: Sequence[RedisServer],
        id_of: Callable[[RedisServer], str],
    ) -> None:
        self.slot, self.source, self.target = slot, source, target
        self._others = [node for node in primaries if node not in (source, target)]
        self._source_id, self._target_id = id_of(source), id_of(target)
        self._finished = source is target

    def begin(self) -> None:
        """Have the target expect the slot, and the source give it away."""
        if not self._finished:
            self._set_slot(self.target, "importing", self._source_id)
            self._set_slot(self.source, "migrating", self._target_id)

    def move_keys(self, *, most: int | None = None) -> int:
        """Move the keys that the source still has, or *most* of them; say how many were moved."""
        keys = self._keys(most)
        if keys:
            password = self.source.password
            auth = ("auth", password) if password else ()
            place = (HOST, str(self.target.port), '""', "0", "5000")
            self.source.cli("--quoted-input", "migrate", *place, *auth, "keys", *keys)
        return len(keys)

    def finish(self) -> None:
        """Move what is left, and tell all primaries that the slot has a new owner."""
        if self._finished:
            return
        while self.move_keys():
            pass
        # The target first: were it last, nobody would own the slot if the source died meanwhile.
        for node in (self.target, self.source, *self._others):
            self._set_slot(node, "node", self._target_id)
        self._finished = True

    def _keys(self, most: int | None) -> list[str]:
        count = _MANY if most is None else str(most)
        answer = self.source.cli("--no-raw", "cluster", "getkeysinslot", str(self.slot), count)
        return _ITEM.findall(answer)

    def _set_slot(self, node: RedisServer, state: str, other: str) -> None:
        node.cli("cluster", "setslot", str(self.slot), state, other)
