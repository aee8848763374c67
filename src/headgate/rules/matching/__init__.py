"""Which rules are for a request, and what it costs."""

from headgate.rules.matching.cookie import cookie_of, cookies_of
from headgate.rules.matching.costing import cost_after, cost_of, cost_said_after
from headgate.rules.matching.endpoint import endpoint_of
from headgate.rules.matching.host import normalised_host
from headgate.rules.matching.matcher import Matcher
from headgate.rules.matching.method import methods_of
from headgate.rules.matching.path import normalised_path, readings, resources
from headgate.rules.matching.pattern import Pattern, compiled
from headgate.rules.matching.priorities import Classifier

__all__ = [
    "Classifier",
    "Matcher",
    "Pattern",
    "compiled",
    "cookie_of",
    "cookies_of",
    "cost_after",
    "cost_of",
    "cost_said_after",
    "endpoint_of",
    "methods_of",
    "normalised_host",
    "normalised_path",
    "readings",
    "resources",
]
