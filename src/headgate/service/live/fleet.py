"""The nodes that share a store: each publishes a few figures there and reads those of the others.

Every few seconds the first worker of a node publishes each figure as a value of the node, which
expires by itself: a node that has stopped, or has lost the store, disappears. The store bounds the
number of nodes. Without the store a node knows only itself.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import StoreError
from headgate.service.logs import LOG
from headgate.stores.base import group_name
from headgate.stores.operations import PublishValue
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.stores.base import Store

EVERY_S: Final = 5
TTL_NS: Final = 3 * EVERY_S * SECOND
FIGURES: Final = ("allowed", "denied", "p99", "store", "revision", "workers", "digest")
"""Requests per second, the latency in seconds, the state of the store (a place in `STATES`)."""

STATES: Final = ("ok", "failing", "open")
_UNKNOWN: Final = -1.0
_RECENT_S: Final = 10

Node = dict[str, Any]


def node_name(address: str) -> str:
    """The name of the node that listens at *address*, such as "127.0.0.1:8090"."""
    return f"{socket.gethostname()}:{address.rpartition(':')[2]}"[:200]


class Fleet:
    """The figures of all nodes in *store*; *digest* returns that of the policy in force."""

    def __init__(
        self, store: Store, *, namespace: str, node: str, digest: Callable[[], float]
    ) -> None:
        self._store = store
        self._group = group_name(namespace, "!nodes")  # no rule is called that
        self._digest = digest
        self._is_forbidden = False
        self.node = node
        self.nodes: list[Node] = []
        """The figures of all nodes, as of the last `publish`; empty without the store."""

    @property
    def is_possible(self) -> bool:
        """True if other nodes can share the store, and it allows to publish values."""
        return self._store.is_shared and self._store.publishes_values and not self._is_forbidden

    async def publish(self, view: Mapping[str, Any]) -> None:
        """Publish the figures of this node from *view*, and read those of all."""
        own = {**figures_of(view), "digest": self._digest()}
        first, *others = [
            PublishValue(self._group, name, self.node, own[name], 1.0, TTL_NS) for name in FIGURES
        ]
        try:
            # One alone: a user of the store may lack the permission, and calls that fail open the
            # circuit.
            reply = await self._store.arun(first)
            replies = [reply, *await asyncio.gather(*map(self._store.arun, others))]
        except StoreError as error:
            self.nodes = []
            if error.reason == "denied":
                self._is_forbidden = True
                LOG.warning("the dashboard cannot show other nodes: %s", error)
            return
        found: dict[str, Node] = {}
        for name, published in zip(FIGURES, replies, strict=True):
            for origin, value, _ in published:
                known = found.setdefault(origin, {"node": origin, **dict.fromkeys(FIGURES)})
                known[name] = None if value == _UNKNOWN else value
        for one in found.values():
            state = one["store"]
            one["store"] = None if state is None else STATES[min(int(state), len(STATES) - 1)]
        self.nodes = [found[origin] for origin in sorted(found)]


def figures_of(view: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a node from its *view*; those that are not known are -1."""
    requests = view["series"]["requests"]
    p99, revision = view["latency"]["p99"], view["policy"]["revision"]
    return {
        **{name: sum(requests[name][-_RECENT_S:]) / _RECENT_S for name in ("allowed", "denied")},
        "p99": _UNKNOWN if p99 is None else p99,
        "store": float(STATES.index(view["store"]["state"])),
        "revision": _UNKNOWN if revision is None else float(revision),
        "workers": float(view["workers"]),
    }
