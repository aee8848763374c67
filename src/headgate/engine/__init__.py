"""The whole way of a request: rules, identity, one store operation, a verdict.

`Engine` plans and `verdict_of` concludes, both without I/O; `RuleEngine` and `AsyncRuleEngine` run
the plan on a store.
"""

from headgate.engine.caller import Concern
from headgate.engine.plan import Plan, RulePlan
from headgate.engine.planner import Engine
from headgate.engine.rule_engine import AsyncRuleEngine, PolicyInForce, RuleEngine
from headgate.engine.runner import AsyncRunner, Runner
from headgate.engine.verdict import (
    RuleVerdict,
    Verdict,
    answer_of,
    repeated,
    verdict_of,
    verdict_unasked,
    verdict_without_store,
)

__all__ = [
    "AsyncRuleEngine",
    "AsyncRunner",
    "Concern",
    "Engine",
    "Plan",
    "PolicyInForce",
    "RuleEngine",
    "RulePlan",
    "RuleVerdict",
    "Runner",
    "Verdict",
    "answer_of",
    "repeated",
    "verdict_of",
    "verdict_unasked",
    "verdict_without_store",
]
