"""What can be seen from outside: measures that count and tell."""

from headgate.observability.measures import MEASURES, Counter, Measures

__all__ = ["MEASURES", "Counter", "Measures"]
