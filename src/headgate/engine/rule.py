"""A rule as the engine needs it: compiled from a policy, a route limit or a limiter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from headgate.decision import HeaderMode, OnFailure

Mode = Literal["enforce", "shadow", "off"]
"""The mode of a rule: it decides, it only reports what it would have decided, or it is off."""

Priority = Literal["critical", "default", "sheddable"]

DEFAULT_ON_FAILURE: Final = OnFailure()


@dataclass(slots=True)
class CompiledRule:
    """The part of a rule that matters after planning. Never changed."""

    id: str
    mode: Mode = "enforce"
    headers: HeaderMode = "on"
    """The header mode of the responses to its requests."""
    on_failure: OnFailure = DEFAULT_ON_FAILURE
    candidate_of: str | None = None
    """The id of the rule that this one, in shadow, may replace."""
    charges_after: bool = False
    """True if a request may cost more when it is over than it was charged."""
    declared: Any = None
    """The rule of the policy, for explanations; None if there is no policy."""
