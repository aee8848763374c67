"""The policy in force: replaced as a whole, its revision only ever growing."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headgate.engine.engine import Engine
from headgate.engine.softening import Scale
from headgate.engine.trying import put_in_force

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.clock import Clock
    from headgate.rules.model import Policy


class PolicyInForce:
    """The engine of the policy in force. Reading it is one attribute; replacing it is atomic."""

    def __init__(
        self,
        policy: Policy,
        *,
        salt: bytes = b"",
        namespace: str = "headgate",
        clock: Clock | None = None,
    ) -> None:
        self.scale = Scale()
        """What pressure has brought limits down to; whoever watches that sets it."""
        self._new_engine = partial(
            Engine, salt=salt, namespace=namespace, clock=clock, scale=self.scale
        )
        self._lock = threading.Lock()
        self._listeners: list[Callable[[Engine], None]] = []
        self.engine = self._new_engine(policy)
        put_in_force(policy)

    @property
    def policy(self) -> Policy:
        return self.engine.policy

    def tell(self, listener: Callable[[Engine], None]) -> None:
        """Have *listener* told the engine that is in force, and each one that is about to be."""
        with self._lock:
            listener(self.engine)
            self._listeners.append(listener)

    def replace(self, policy: Policy) -> int:
        """Put *policy* in force from the next request on; its revision, greater than all before.

        A policy that cannot be put in force raises and changes nothing.
        """
        with self._lock:
            revision = max(policy.revision, self.engine.policy.revision + 1)
            engine = self._new_engine(replace(policy, revision=revision))
            for listener in self._listeners:
                listener(engine)
            put_in_force(engine.policy, self.engine.policy)
            self.engine = engine
        return revision
