"""How a verdict came about: which rules are for a request, why the others are not, whose counters.

reasons     why a rule is not for a request, in words
members     every rule of a policy, and what it has to do with a request
"""

from headgate.engine.explaining.members import Member, Membership
from headgate.engine.explaining.reasons import Reasons

__all__ = ["Member", "Membership", "Reasons"]
