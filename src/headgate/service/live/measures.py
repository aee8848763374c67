"""What the service tells of itself at `/metrics`: its version, and how its policy stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headgate import __version__
from headgate.control.feed_state import FeedState
from headgate.observability import MEASURES
from headgate.units import SECOND

if TYPE_CHECKING:
    from headgate.engine import AsyncRuleEngine
    from headgate.observability import Measures

_RULES: Final = "rules"


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
        self._errors = measures.counter(
            "policy_load_errors", "Policies that could not be put in force.", what=_RULES
        )
        for name, text, read in (
            ("policy_revision", "The revision in force; 0 if there is none.", self.revision),
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
