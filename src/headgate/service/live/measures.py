"""What the service tells of itself at `/metrics`: its version, and how its policy stands."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from headgate import __version__
from headgate.control.feed_state import FeedState
from headgate.observability import MEASURES
from headgate.rules.reading import policy_to_data
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.engine import AsyncRuleEngine
    from headgate.observability import Measures
    from headgate.rules.model import Policy

_RULES: Final = "rules"
_DIGEST_BYTES: Final = 6
"""So many that a float has all of them."""


class ServiceMeasures:
    """The measures of a worker that began at *began_ns* and decides by *engine*.

    They are told for as long as it lives. `changed` is for a feed's `on_change`.
    """

    def __init__(
        self, engine: AsyncRuleEngine, *, began_ns: int, measures: Measures = MEASURES
    ) -> None:
        self._engine = engine
        self._began_ns = began_ns
        self._state = FeedState()
        self._digested: tuple[Policy, float] | None = None
        self._errors = measures.counter(
            "policy_load_errors", "Policies that could not be put in force.", what=_RULES
        )
        for name, text, read in (
            ("policy_revision", "The revision in force; 0 if there is none.", self.revision),
            ("policy_digest", "Made of the policy in force: equal where that is.", self.digest),
            ("policy_rules", "Rules in force.", self.rules),
            ("policy_stale", "1 if where the policy comes from cannot be asked.", self.stale),
            ("policy_refused", "1 if a newer policy cannot be put in force.", self.refused),
            ("start_time_seconds", "When it began, in seconds since the epoch.", self.began),
        ):
            measures.gauge(name, text, read)
        text = "Always 1; the version is a label."
        measures.gauge("build_info", text, self.one, version=__version__)

    def changed(self, state: FeedState) -> None:
        """The policy's feed is in *state* now."""
        before, self._state = self._state, state
        if state.failures > before.failures:
            self._errors.add(state.failures - before.failures)
        elif state.problems not in (None, before.problems) and not state.refused:
            self._errors.add()  # what is no policy at all has no revision to be refused

    def revision(self) -> float:
        return self._state.revision or 0

    def digest(self) -> float:
        """A number that is the same wherever the policy is. (A revision may be counted by each
        process for itself.)"""
        policy = self._engine.in_force.policy
        if self._digested is None or self._digested[0] is not policy:
            text = json.dumps(policy_to_data(policy), sort_keys=True)
            number = int.from_bytes(blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest())
            self._digested = policy, float(number)
        return self._digested[1]

    def rules(self) -> float:
        return len(self._engine.in_force.policy.rules)

    def stale(self) -> float:
        return float(self._state.is_stale)

    def refused(self) -> float:
        return float(self._state.problems is not None)

    def began(self) -> float:
        return self._began_ns / SECOND

    def one(self) -> float:
        return 1.0
