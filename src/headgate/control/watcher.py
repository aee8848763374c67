"""`PolicyWatcher`: keeps the newest configuration of a source in force, in a thread.

    head ----> apply ----> wait ----> head ... the source fails ----> back off, and ask again

The source's answer (`head`) is the truth, an older number included: it was restored from a backup
then. `wait` only says when to ask. One answer is not trusted: that there is no policy, after there
was one. A source that was emptied by mistake must not lift every limit, so the last
good policy stays in force until something is written; after a restart, it is the copy on disk.
"""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headgate.chance import chance
from headgate.control.documents import parse_policy, validated
from headgate.control.file_source import FileSource, InvalidFileError
from headgate.control.files import PolicyFiles, clear_leftovers, replace_file
from headgate.control.revision import (
    Revision,
    SourceError,
    collector_paused,
    revision_from_json,
)
from headgate.errors import HeadgateError, OptionError
from headgate.observability import METRICS
from headgate.policy.problems import PolicyError, Problem
from headgate.policy.rule_cache import RuleCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from typing import Self

    from headgate.clock import Clock
    from headgate.control.file_source import Parse
    from headgate.control.files import Loaded
    from headgate.control.revision import Change, Parsed
    from headgate.control.source import PolicySource
    from headgate.observability import MetricRegistry

LOG: Final = logging.getLogger("headgate.control")
FIRST_WAIT: Final = 0.1
"""Seconds before the second attempt to reach a source; twice as long before each further one."""
LONGEST_WAIT: Final = 5.0
LONGEST_WATCH: Final = 60.0
"""Seconds after which the source is asked even if it has announced no change."""
_LEFTOVER_AGE: Final = 60.0
"""Seconds after which an unfinished file of another process is removed."""


@dataclass(frozen=True, slots=True)
class State:
    """The configuration in force, and what keeps a newer one out.

    *revision*, *change*, *loaded_at_ns* (since the epoch) and *fingerprint* (of the content of
    files) are of the configuration in force, None before there is one. *is_stale*: the source could
    not be read at the last attempt, *trouble* says why. *problems* lists what is wrong with a newer
    configuration, *rejected* is its revision if it has one (0: the source is empty). *failures*
    counts the configurations that could not be put in force. *warnings* are about the one in force.
    """

    revision: int | None = None
    change: Change | None = None
    loaded_at_ns: int | None = None
    fingerprint: str | None = None
    is_stale: bool = False
    trouble: str | None = None
    problems: tuple[Problem, ...] | None = None
    rejected: int | None = None
    failures: int = 0
    warnings: tuple[Problem, ...] = ()

    @property
    def is_current(self) -> bool:
        """True if the newest configuration is in force, as far as is known."""
        return self.revision is not None and not self.is_stale and self.problems is None

    @property
    def not_ready(self) -> tuple[str, ...]:
        """Reasons not to decide requests yet. A stale policy is better than none."""
        if self.revision is not None:
            return ()
        if self.problems is not None and self.rejected is not None:
            return (f"no policy is in force: revision {self.rejected} is invalid",)
        return (f"no policy is in force: {self.trouble or 'none has been read yet'}",)


class PolicyWatcher:
    """Puts the newest configuration of *source* in force by *apply*, and every one after it.

    *source* is a `PolicySource`, or the `PolicyFiles` of an app. *apply* (`RuleEngine.replace`)
    puts a configuration in force and returns its revision. *in_force* is what was loaded already
    and is not applied again. *keep* is a file for the last good revision. *on_change* is called
    with each new `State`. Both functions are called one at a time, in the thread of the watcher or
    of the caller of `start`, `check_now` and `learn`. A `HeadgateError` of *apply* counts as an
    invalid configuration; after any other error the thread logs it and tries again.

    For `PolicyFiles`: *interval* is the time between two looks in seconds, *parse* reads the texts.
    *what* labels the metrics. After a fork the child has no watcher until it starts one.
    """

    def __init__(
        self,
        source: PolicySource | PolicyFiles,
        apply: Callable[[Any], int | None],
        *,
        interval: float = 0.5,
        parse: Parse = parse_policy,
        in_force: Loaded | None = None,
        keep: Path | None = None,
        on_change: Callable[[State], None] | None = None,
        what: str = "rules",
        longest_wait: float = LONGEST_WAIT,
        longest_watch: float = LONGEST_WATCH,
        log: logging.Logger = LOG,
        clock: Clock = time.time_ns,
        jitter: Callable[[], float] = chance,
        measures: MetricRegistry = METRICS,
    ) -> None:
        if not (interval > 0 and math.isfinite(interval)):
            raise OptionError(f"interval: {interval!r} is not a number of seconds above 0")
        self._has_numbers = not isinstance(source, PolicyFiles)
        if isinstance(source, PolicyFiles):
            source = FileSource(
                source.path, read_only=True, has_history=False, parse=parse, interval=interval
            )
        self._source = source
        self._apply = apply
        self._keep = keep
        self._on_change = on_change
        self._longest_wait, self._longest_watch = longest_wait, longest_watch
        self._log = log
        self._clock = clock
        self._jitter = jitter
        self._errors = measures.counter(
            "policy_load_errors", "Policies that could not be put in force.", what=what
        )
        self._loads = measures.counter(
            "policy_loads", "Configurations that were put in force.", what=what
        )
        self._lock = threading.RLock()
        self._in_force: Revision | None = None
        self._rejected: Revision | None = None
        self._thread: threading.Thread | None = None
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.memory = RuleCache()
        """Rules that were validated, for others who read the same ones."""
        self.state = State()
        if in_force is not None:
            self._warn(in_force.warnings)
            self.state = State(
                revision=in_force.policy.revision,
                loaded_at_ns=self._clock(),
                fingerprint=in_force.fingerprint,
                warnings=in_force.warnings,
            )

    @property
    def place(self) -> str:
        """The location of the source."""
        return self._source.place

    @property
    def is_watching(self) -> bool:
        """True while the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, *, is_checked: bool = False) -> None:
        """Put the newest configuration in force, or the copy on disk; then watch in a thread.

        Returns after one attempt, with or without a configuration in force: see `state`. If it
        *is_checked* that the source is in force, or soon will be, the thread reads it first. Does
        nothing if the thread runs.
        """
        with self._lock:
            if self.is_watching:
                return
            if not is_checked:
                self._check()
            thread = threading.Thread(target=self._run, name="headgate-policy-watcher", daemon=True)
            self._thread = thread
        thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for its end. The configuration in force stays."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._wake()
        if thread is not threading.current_thread():
            thread.join()

    def check_now(self) -> State:
        """Read the source now, put a new configuration in force, and return the state."""
        with self._lock:
            self._rejected = None
            self._check()
            return self.state

    def check_soon(self) -> None:
        """Have the thread read the source at once. Never blocks; safe in a signal handler."""
        if self.is_watching:
            self._wake()

    def learn(self, revision: Revision) -> None:
        """Put *revision*, which was just committed, in force now if it is newer."""
        with self._lock:
            newest = self._in_force
            is_empty = self.state.rejected == 0
            if newest is None or revision.number > newest.number or is_empty:
                self._take(revision)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    def _wake(self) -> None:
        self._wakes.put(None)
        self._source.wake()

    def _is_stopped(self) -> bool:
        return self._thread is not threading.current_thread()

    def _run(self) -> None:
        attempts: float = 0
        is_doubted = False
        while not self._is_stopped():
            while not self._wakes.empty():
                self._wakes.get()
            try:
                newest = self._ask()
                is_doubted = False
                if not self._is_stopped():
                    self._source.wait(newest, self._longest_watch)
                attempts = 0
                continue
            except InvalidFileError as error:
                # It may be half written: it is reported if it is still invalid a moment later.
                attempts = 1
                if is_doubted:
                    self._report_unavailable(error)
                is_doubted = True
            except SourceError as error:
                attempts += 1
                self._report_unavailable(error)
            except Exception as error:  # noqa: BLE001 - a mistake in *apply* must not end the watch
                attempts = math.inf
                self._fail(error)
            self._back_off(attempts)

    def _back_off(self, attempts: float) -> None:
        """Wait longer from attempt to attempt, and not the same time on all nodes."""
        longest = min(self._longest_wait, FIRST_WAIT * 2 ** min(attempts, 20))
        try:
            if not self._is_stopped():
                self._wakes.get(timeout=longest * (0.5 + self._jitter() / 2))
        except queue.Empty:
            return

    def _check(self) -> None:
        try:
            self._ask()
        except SourceError as error:
            self._report_unavailable(error)
        if self._in_force is None:
            self._use_last_known_good()

    @collector_paused()
    def _ask(self) -> Revision:
        """Read the newest revision of the source, and put it in force if it is not."""
        while True:
            before = self._in_force
            newest = self._source.head()
            with self._lock:
                if self._in_force is before:  # else `learn` was faster, and *newest* may be older
                    self._judge(newest)
                    return newest

    def _judge(self, newest: Revision) -> None:
        was_stale = self.state.is_stale
        if was_stale or self.state.trouble is not None:
            problems = None if self._rejected is None else self.state.problems
            self._update(is_stale=False, trouble=None, problems=problems)
        if self._is_in_force(newest):
            if was_stale:
                self._log.info("%s: available again", self.place)
            self._in_force, self._rejected = newest, None
            if self.state.problems is not None:
                self._update(problems=None, rejected=None)
        elif newest.number == 0 and self._had_policy():
            self._report_empty()
        else:
            before = self._in_force
            if before is not None and self._has_numbers and newest.number <= before.number:
                message = "%s: went back from revision %d to %d"
                self._log.warning(message, self.place, before.number, newest.number)
            self._take(newest)

    def _is_in_force(self, newest: Revision) -> bool:
        known = self._in_force
        if known is None:
            return newest.fingerprint is not None and newest.fingerprint == self.state.fingerprint
        return newest == known

    def _had_policy(self) -> bool:
        """True if there was a policy, before the source was read or before this process began."""
        if self._in_force is None:
            self._use_last_known_good()
        return self._in_force is not None and self._in_force.number > 0

    def _report_empty(self) -> None:
        kept = self.state.revision
        message = f"the source is empty; revision {kept} stays in force until a policy is written"
        problem = Problem("error", self.place, message)
        if self.state.problems != (problem,):
            self._log.error("%s: %s", self.place, message)
            self._report_invalid((problem,), rejected=0)

    @collector_paused()
    def _take(self, revision: Revision, *, is_kept: bool = False) -> None:
        """Put *revision* in force, or report once that it is invalid. The caller has the lock."""
        if revision == self._rejected:
            return
        try:
            parsed = revision.parsed or validated(revision.document, self.memory)
            config = parsed.config
            if self._has_numbers:
                config = replace(config, revision=revision.number)
            number = self._apply(config)
        except PolicyError as error:
            self._reject(revision, error.problems)
            return
        except HeadgateError as error:
            message = f"cannot be applied: {str(error) or type(error).__name__}"
            self._reject(revision, (Problem("error", self.place, message),))
            return
        if number is None or self._has_numbers:
            number = revision.number
        self._took(revision, number, parsed, is_kept=is_kept)

    def _took(self, revision: Revision, number: int, parsed: Parsed, *, is_kept: bool) -> None:
        self._in_force = replace(revision, parsed=None, text=None)
        if not is_kept:
            self._rejected = None
        change = revision.change
        has_author = self._has_numbers and change.author
        by = f" ({change.what}, by {change.author})" if has_author else ""
        self._log.info("%s: revision %d is in force%s", self.place, number, by)
        self._warn(parsed.warnings)
        self._loads.add()
        self._update(
            revision=number,
            change=change,
            loaded_at_ns=self._clock(),
            fingerprint=revision.fingerprint,
            problems=None,
            rejected=None,
            warnings=parsed.warnings,
        )
        if self._keep is not None and not is_kept and revision.number > 0:
            try:
                self._keep.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                replace_file(self._keep, revision.to_json())
            except OSError as error:
                reason = f"{self._keep}: {error.strerror or error}"
                self._log.warning("no copy of revision %d was kept: %s", revision.number, reason)

    def _warn(self, warnings: tuple[Problem, ...]) -> None:
        if warnings:
            self._log.warning("%s: warnings\n%s", self.place, _lines(warnings))

    def _reject(self, revision: Revision, problems: tuple[Problem, ...]) -> None:
        self._rejected = revision
        message = "%s: revision %d is invalid; %s\n%s"
        self._log.error(message, self.place, revision.number, self._kept(), _lines(problems))
        self._report_invalid(problems, rejected=revision.number)

    def _report_invalid(self, problems: tuple[Problem, ...], **more: Any) -> None:
        self._errors.add()
        self._update(problems=problems, failures=self.state.failures + 1, **more)

    def _use_last_known_good(self) -> None:
        """Begin with the copy on disk, if there is one. The caller has the lock."""
        if self._keep is None:
            return
        clear_leftovers(self._keep, age=_LEFTOVER_AGE)
        try:
            revision = revision_from_json(self._keep.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, SourceError) as error:
            reason = getattr(error, "strerror", None) or error
            message = "the copy of the last good policy cannot be used: %s: %s"
            self._log.warning(message, self._keep, reason)
            return
        message = "%s: starting with revision %d, the last good one, from the copy on disk"
        self._log.warning(message, self.place, revision.number)
        before = self.state
        self._take(revision, is_kept=True)
        if before.problems is not None and self._in_force is not None:
            # The newest is still invalid: only the revision in force has changed.
            self._update(problems=before.problems, rejected=before.rejected)

    def _report_unavailable(self, error: SourceError) -> None:
        """Report, once, that the source cannot be read."""
        trouble = str(error)
        with self._lock:
            if self.state.trouble == trouble:
                return
            if isinstance(error, InvalidFileError):
                self._log.warning("%s: invalid; %s\n%s", self.place, self._kept(), trouble)
                self._report_invalid(error.problems, is_stale=True, trouble=trouble)
            else:
                self._log.warning("%s: unavailable; %s: %s", self.place, self._kept(), trouble)
                self._update(is_stale=True, trouble=trouble)

    def _fail(self, error: Exception) -> None:
        self._log.critical("%s: the watcher failed", self.place, exc_info=error)
        with self._lock:
            self._update(is_stale=True, trouble=f"the watcher failed: {type(error).__name__}")

    def _kept(self) -> str:
        kept = self.state.revision
        return "no policy is in force" if kept is None else f"revision {kept} stays in force"

    def _update(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)
        if self._on_change is not None:
            self._on_change(self.state)


def _lines(problems: Iterable[Problem]) -> str:
    return "\n".join(str(problem) for problem in problems)
