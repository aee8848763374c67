"""The policy in force: replaced as a whole, its revision only ever growing."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from headgate.engine.engine import Engine

if TYPE_CHECKING:
    from headgate.rules.model import Policy


class PolicyInForce:
    """The engine of the policy in force. Reading it is one attribute; replacing it is atomic."""

    def __init__(self, policy: Policy, *, salt: bytes = b"", namespace: str = "headgate") -> None:
        self._salt = salt
        self._namespace = namespace
        self._lock = threading.Lock()
        self.engine = Engine(policy, salt=salt, namespace=namespace)

    @property
    def policy(self) -> Policy:
        return self.engine.policy

    def replace(self, policy: Policy) -> int:
        """Put *policy* in force from the next request on; its revision, greater than all before.

        A policy that cannot be put in force raises and changes nothing.
        """
        with self._lock:
            revision = max(policy.revision, self.engine.policy.revision + 1)
            numbered = replace(policy, revision=revision)
            self.engine = Engine(numbered, salt=self._salt, namespace=self._namespace)
        return revision
