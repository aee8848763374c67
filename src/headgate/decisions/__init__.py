"""What came of a check: the decision, several as one, and what to say when the store is gone."""

from headgate.decisions.combine import combine
from headgate.decisions.decision import Concluded, Decision
from headgate.decisions.failure import FailurePolicy, checked_policy, decide_without_store
from headgate.decisions.paced import paced_decisions
from headgate.decisions.refusal import RateLimitedError

__all__ = [
    "Concluded",
    "Decision",
    "FailurePolicy",
    "RateLimitedError",
    "checked_policy",
    "combine",
    "decide_without_store",
    "paced_decisions",
]
