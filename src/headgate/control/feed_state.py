"""How a feed of policies stands, for readiness, metrics and people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.control.revision import Change
    from headgate.rules.problems import Problem


@dataclass(frozen=True, slots=True)
class FeedState:
    """What is in force, and what keeps the newest from being so.

    *revision*, *change* and *loaded_at_ns* (since the epoch) are of the policy in force, None
    before there is one; the number is the storage's. *is_stale*: the storage could not be asked
    when it was last tried, so there may be a newer one; *trouble* says why. *problems* is what is
    wrong with a newer revision that cannot be put in force, *refused* its number if it has one.
    *failures* counts the revisions that could not be. *warnings* are about the policy in force.
    """

    revision: int | None = None
    change: Change | None = None
    loaded_at_ns: int | None = None
    is_stale: bool = False
    trouble: str | None = None
    problems: tuple[Problem, ...] | None = None
    refused: int | None = None
    failures: int = 0
    warnings: tuple[Problem, ...] = ()

    @property
    def is_current(self) -> bool:
        """Whether the newest revision is in force, as far as anybody knows."""
        return self.revision is not None and not self.is_stale and self.problems is None

    @property
    def not_ready(self) -> tuple[str, ...]:
        """Why requests should not be decided yet, in words. A stale policy is better than none."""
        if self.revision is not None:
            return ()
        if self.problems is not None and self.refused is not None:
            return (f"no policy is in force: revision {self.refused} cannot be read",)
        return (f"no policy is in force: {self.trouble or 'none has been read yet'}",)
