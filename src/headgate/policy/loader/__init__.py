"""Load a policy from text or data, or report everything that is wrong with it; and write it back.

documents -> diagnostics (tree and places) -> scalars -> rules -> policies
"""

from headgate.policy.loader.plain_data import (
    identity_to_data,
    override_to_data,
    policy_to_data,
    rule_to_data,
)
from headgate.policy.loader.policies import (
    Examined,
    examine_policies,
    examine_policy,
    examine_policy_data,
    read_policies,
    read_policy,
    read_policy_data,
    read_rule_data,
)
from headgate.policy.loader.rule_cache import RuleMemory

__all__ = [
    "Examined",
    "RuleMemory",
    "examine_policies",
    "examine_policy",
    "examine_policy_data",
    "identity_to_data",
    "override_to_data",
    "policy_to_data",
    "read_policies",
    "read_policy",
    "read_policy_data",
    "read_rule_data",
    "rule_to_data",
]
