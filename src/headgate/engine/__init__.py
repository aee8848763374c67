"""The whole way of a request: rules, identity, one store operation, a verdict.

`Engine` plans and `verdict_of` concludes, both without I/O; `RuleEngine` and `AsyncRuleEngine` run
the plan on a store.
"""

from headgate.engine.answering import answer_of
from headgate.engine.caller import Concern
from headgate.engine.conclusion import (
    repeated,
    verdict_of,
    verdict_unasked,
    verdict_without_store,
)
from headgate.engine.engine import Engine
from headgate.engine.plan import Plan, RulePlan
from headgate.engine.policies import PolicyInForce
from headgate.engine.rule_engine import AsyncRuleEngine, RuleEngine
from headgate.engine.running import AsyncRunner, Runner
from headgate.engine.verdict import RuleVerdict, Verdict

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
