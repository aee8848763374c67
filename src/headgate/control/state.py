"""How reloading stands, for metrics and for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.rules.problems import Problem


@dataclass(frozen=True, slots=True)
class State:
    """What is in force, and what keeps the files from being so.

    *revision*, *loaded_at_ns* (since the epoch) and *fingerprint* (of the content: equal on all
    machines that have the same files) are of the policy in force, None before there is one.
    *problems* is what is wrong with the files as they are now, None if they are in force.
    *failures* counts the contents that could not be put in force. *warnings* are those about the
    policy in force.
    """

    revision: int | None = None
    loaded_at_ns: int | None = None
    fingerprint: str | None = None
    problems: tuple[Problem, ...] | None = None
    failures: int = 0
    warnings: tuple[Problem, ...] = ()

    @property
    def is_current(self) -> bool:
        """Whether what the files say is in force."""
        return self.problems is None and self.revision is not None

    @property
    def loaded_at(self) -> float | None:
        """When the policy in force was put there, in seconds since the epoch."""
        return None if self.loaded_at_ns is None else self.loaded_at_ns / SECOND
