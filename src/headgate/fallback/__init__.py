"""What a process does while its store is gone: a share of each limit, and the truth afterwards."""

from headgate.fallback.asked import ELSEWHERE, HERE, Asked
from headgate.fallback.fallback import Fallback
from headgate.fallback.registry import fallback_of
from headgate.fallback.share import scaled

__all__ = ["ELSEWHERE", "HERE", "Asked", "Fallback", "fallback_of", "scaled"]
