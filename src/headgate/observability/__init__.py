"""What can be seen from outside: measures that count and tell, and the journal of decisions."""

from headgate.observability.journal import JOURNAL, Decided, Journal, Said
from headgate.observability.measures import MEASURES, Counter, Measures

__all__ = ["JOURNAL", "MEASURES", "Counter", "Decided", "Journal", "Measures", "Said"]
