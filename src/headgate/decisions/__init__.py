"""What came of a check: the decision, several as one, and what to say when the store is gone."""

from headgate.decisions.block import OVERRIDE, decide_blocked
from headgate.decisions.combine import binds_more, combine
from headgate.decisions.decision import Concluded, Decision, Figures
from headgate.decisions.failure import (
    FailurePolicy,
    OnFailure,
    checked_policy,
    decide_without_store,
    read_on_failure,
)
from headgate.decisions.paced import paced_decisions
from headgate.decisions.refusal import RateLimitedError

__all__ = [
    "OVERRIDE",
    "Concluded",
    "Decision",
    "FailurePolicy",
    "Figures",
    "OnFailure",
    "RateLimitedError",
    "binds_more",
    "checked_policy",
    "combine",
    "decide_blocked",
    "decide_without_store",
    "paced_decisions",
    "read_on_failure",
]
