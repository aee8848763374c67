"""Is there something new, is it whole, is it good: one look at the files at a time.

A look costs a `stat` of each file. What that shows to be new is read when nothing has moved for a
moment, so that nobody takes half a file for a policy: half a YAML file is often a good one. The
content is compared with that of the policy in force, so that a touch changes nothing. What cannot
be put in force may still be on its way to the disk: it is told only if it is the same an interval
later. Until then, and after, the last good policy stays.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headgate.control.files import place_of
from headgate.control.state import State
from headgate.errors import HeadgateError
from headgate.rules.problems import PolicyError, Problem

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterable

    from headgate.clock import Clock
    from headgate.control.files import Loaded, PolicyFiles, Stamp
    from headgate.rules.model import Policy

MOMENT: Final = 0.1
"""For how many seconds files must not have moved to be read; less if the interval is shorter.

More than the step of any common file system's clock, so that a change after the reading is seen.
"""

PATIENCE: Final = 100
"""How many moments are waited for files to come to rest: on some disks they never seem to."""

_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class _Found:
    """What the files are: in force already, or a *policy*, or no policy because of *problems*.

    *fingerprint* is None if they could not be read.
    """

    fingerprint: str | None
    policy: Policy | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def is_bad(self) -> bool:
        return any(problem.severity == "error" for problem in self.problems)


class Reload:
    """Brings what *files* say into force by *apply*. It never waits; safe among threads.

    *interval* is the time between looks in seconds. *in_force* is what was loaded already.
    Only errors of Headgate's own are survived; whatever else *apply* raises is a mistake in it.
    """

    def __init__(
        self,
        files: PolicyFiles,
        apply: Callable[[Policy], int],
        *,
        interval: float,
        in_force: Loaded | None,
        on_change: Callable[[State], None] | None,
        log: logging.Logger,
        clock: Clock,
    ) -> None:
        self.interval = interval
        self._files = files
        self._apply = apply
        self._on_change = on_change
        self._log = log
        self._clock = clock
        self._lock = threading.RLock()  # a signal's handler may ask while the same thread does
        self._known: Stamp | None = None
        self._moving: Stamp | None = None
        self._restless = 0
        self._is_doubted = False
        self._told: tuple[str | None, tuple[Problem, ...]] | None = None
        self.state = State() if in_force is None else self._begun(in_force)

    @property
    def place(self) -> str:
        return place_of(self._files.path)

    def look(self) -> float:
        """See whether something has changed, and act if it is time; seconds until the next look."""
        with self._lock:
            stamp = self._files.stamp()
            if stamp == self._known:
                return self.interval
            return self._consider(stamp)

    def check(self) -> State:
        """Read the files now, whatever they look like, and act; the state after that."""
        with self._lock:
            for _ in range(_TRIES):
                stamp = self._files.stamp()
                found = self._read()
                if self._files.stamp() == stamp:
                    break
            self._conclude(found)
            self._known = None  # it may have been half a file: the next looks will tell
            return self.state

    def _consider(self, stamp: Stamp) -> float:
        moment = min(MOMENT, self.interval)
        if stamp != self._moving:
            self._moving, self._is_doubted = stamp, False
            self._restless += 1
            if self._restless < PATIENCE:
                return moment
        is_patient = self._restless < PATIENCE
        found = self._read()
        if is_patient and self._files.stamp() != stamp:
            return moment
        if is_patient and found.is_bad and not self._is_doubted:
            self._is_doubted = True
            return self.interval
        self._conclude(found)
        self._restless = 0
        # A file that could not be read may become readable without a change that shows.
        self._known = None if found.fingerprint is None else stamp
        return self.interval

    def _read(self) -> _Found:
        try:
            texts = self._files.read()
        except PolicyError as error:
            return _Found(None, problems=error.problems)
        if texts.fingerprint == self.state.fingerprint:
            return _Found(texts.fingerprint)
        examined = texts.examine()
        return _Found(texts.fingerprint, examined.policy, examined.problems)

    def _conclude(self, found: _Found) -> None:
        if found.is_bad:
            self._fail(found.fingerprint, found.problems)
        elif found.policy is None:
            self._resume()
        else:
            self._put_in_force(found, found.policy)

    def _put_in_force(self, found: _Found, policy: Policy) -> None:
        try:
            revision = self._apply(policy)
        except HeadgateError as error:
            self._fail(found.fingerprint, self._problems_of(error))
            return
        again = "" if self.state.problems is None else "good again, "
        told = "%s: %sthe policy is in force as revision %d; rules: %d"
        self._log.info(told, self.place, again, revision, len(policy.rules))
        self._warn(found.problems)
        now, failures = self._clock(), self.state.failures
        self._told = None
        self._become(State(revision, now, found.fingerprint, None, failures, found.problems))

    def _resume(self) -> None:
        """The files are those in force; perhaps they were not for a while."""
        if self.state.problems is None:
            return
        told = "%s: good again, and the same as before; revision %s stays in force"
        self._log.info(told, self.place, self.state.revision)
        self._told = None
        self._become(replace(self.state, problems=None))

    def _fail(self, fingerprint: str | None, problems: tuple[Problem, ...]) -> None:
        """Say once what is wrong with this content; what is in force stays."""
        if self._told == (fingerprint, problems):
            return
        self._told = (fingerprint, problems)
        told = "%s: the policy cannot be put in force; in force stays %s\n%s"
        self._log.warning(told, self.place, self._kept(), _lines(problems))
        self._become(replace(self.state, problems=problems, failures=self.state.failures + 1))

    def _kept(self) -> str:
        revision = self.state.revision
        return "nothing" if revision is None else f"revision {revision}"

    def _warn(self, warnings: tuple[Problem, ...]) -> None:
        if warnings:
            told = "%s: the policy is in force, with warnings\n%s"
            self._log.warning(told, self.place, _lines(warnings))

    def _problems_of(self, error: HeadgateError) -> tuple[Problem, ...]:
        if isinstance(error, PolicyError):
            return error.problems
        told = f"it was refused by what applies it: {str(error) or type(error).__name__}"
        return (Problem("error", self.place, told),)

    def _become(self, state: State) -> None:
        self.state = state
        if self._on_change is not None:
            self._on_change(state)

    def _begun(self, loaded: Loaded) -> State:
        policy, warnings = loaded.policy, loaded.warnings
        self._warn(warnings)
        return State(policy.revision, self._clock(), loaded.fingerprint, warnings=warnings)


def _lines(problems: Iterable[Problem]) -> str:
    return "\n".join(str(problem) for problem in problems)
