"""What came of a replay: of every request, by rule, by key and over time.

Times are nanoseconds since the epoch, as the trace tells them. A series has one number per step of
`step_ns`, from `began_ns` on. Keys are those of counters: secrets in them are hashed,
unless they were asked for in the clear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_STEPS: Final = 600
"""How many numbers a series has at most."""
MOST_TOLD: Final = 20
"""How many keys a rule tells of at most."""


@dataclass(frozen=True, slots=True)
class KeyResult:
    """What became of a key's requests under a rule."""

    key: str
    requests: int
    denied: int


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What a rule would have done; a rule in shadow denies nothing, and tells what it would deny.

    `keys` and `keys_denied` are how many callers the rule told apart, and how many of them it
    denied something; `top_denied` are those that it denied most.
    """

    rule_id: str
    mode: str
    limit: str
    requests: int
    allowed: int
    denied: int
    keys: int
    keys_denied: int
    first_denied_ns: int | None
    top_denied: tuple[KeyResult, ...]
    allowed_series: tuple[int, ...]
    denied_series: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.allowed + self.denied != self.requests:
            raise ValueError(
                f"rule {self.rule_id}: {self.allowed} allowed and {self.denied} denied are not "
                f"{self.requests} requests"
            )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy would have made of a trace.

    `retries` are the requests that were made because others had been refused; they are among
    `requests`. `skipped` are the lines of the trace that were not understood. `delayed` requests
    are among the allowed ones: they had to wait for their turn in a queue. `notes` say what was not
    simulated, or not exactly.
    """

    policy_name: str
    revision: int
    began_ns: int
    ended_ns: int
    step_ns: int
    requests: int
    allowed: int
    denied: int
    callers: int
    callers_denied: int
    allowed_series: tuple[int, ...]
    denied_series: tuple[int, ...]
    rules: tuple[RuleResult, ...]
    retries: int
    skipped: int
    took_s: float
    delayed: int = 0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.allowed + self.denied != self.requests:
            raise ValueError(
                f"{self.allowed} allowed and {self.denied} denied are not {self.requests} requests"
            )
        if len(self.allowed_series) > MOST_STEPS:
            raise ValueError(f"a series has at most {MOST_STEPS} steps")
