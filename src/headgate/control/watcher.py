"""Looking at the files of a policy again and again: in a thread, or as a task of an event loop.

Looking, not being told: the kernel's notices (inotify and its kin) need a package, say nothing on
network file systems, and lose track of a file that is replaced, which is how files are changed. A
few calls of `stat` every half second cost next to nothing, and see what is there however it came.
"""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from headgate.control.files import place_of
from headgate.errors import HeadgateError, OptionError
from headgate.policy.problems import PolicyError, Problem
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from headgate.clock import Clock
    from headgate.control.files import Loaded, PolicyFiles, Stamp
    from headgate.policy.model import Policy


# How reloading stands, for metrics and for people.


@dataclass(frozen=True, slots=True)
class State:
    """What is in force, and what keeps the files from being so.

    *revision*, *loaded_at_ns* (since the epoch) and *fingerprint* (of the content: equal on all
    machines that have the same files) are of the policy in force, None before there is one.
    *problems* is what is wrong with the files as they are now, None if they are in force.
    *failures* counts the contents that could not be put in force. *warnings* are those about the
    policy in force.
    """

    revision: int | None = None
    loaded_at_ns: int | None = None
    fingerprint: str | None = None
    problems: tuple[Problem, ...] | None = None
    failures: int = 0
    warnings: tuple[Problem, ...] = ()

    @property
    def is_current(self) -> bool:
        """Whether what the files say is in force."""
        return self.problems is None and self.revision is not None

    @property
    def loaded_at(self) -> float | None:
        """When the policy in force was put there, in seconds since the epoch."""
        return None if self.loaded_at_ns is None else self.loaded_at_ns / SECOND


# Is there something new, is it whole, is it good: one look at the files at a time.
#
# A look costs a `stat` of each file. What that shows to be new is read when nothing has moved for a
# moment, so that nobody takes half a file for a policy: half a YAML file is often a good one. The
# content is compared with that of the policy in force, so that a touch changes nothing. What cannot
# be put in force may still be on its way to the disk: it is told only if it is the same an interval
# later. Until then, and after, the last good policy stays.


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


LOG: Final = logging.getLogger("headgate.control")

_Wish: TypeAlias = Literal["check", "stop"]


class _Watching:
    """What both watchers have in common."""

    def __init__(
        self,
        files: PolicyFiles,
        apply: Callable[[Policy], int],
        *,
        interval: float = 0.5,
        in_force: Loaded | None = None,
        on_change: Callable[[State], None] | None = None,
        log: logging.Logger = LOG,
        clock: Clock = time.time_ns,
    ) -> None:
        if not (interval > 0 and math.isfinite(interval)):
            raise OptionError(f"interval: {interval!r} is not a number of seconds above 0")
        self._log = log
        self._turn = threading.RLock()
        self._reload = Reload(
            files,
            apply,
            interval=interval,
            in_force=in_force,
            on_change=on_change,
            log=log,
            clock=clock,
        )

    @property
    def state(self) -> State:
        """How things stand; may be read at any time, from any thread."""
        return self._reload.state


class PolicyWatcher(_Watching):
    """Keeps in force what *files* say, in a thread, while the program does something else.

    *apply* puts a policy in force and says its revision (`RuleEngine.replace`). *in_force* is what
    was loaded already, and is not applied again. *interval* is the time between looks in seconds.
    *on_change* is called with each new `State`. Both are called one at a time, in the thread or in
    that of `check_now`, and must not raise; but a `HeadgateError` of *apply* is told like a bad
    file. After a fork the child has no watcher until it starts one.
    """

    _thread: threading.Thread | None = None
    _wishes: queue.SimpleQueue[_Wish]

    @property
    def is_watching(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def check_now(self) -> State:
        """Read the files now, and put them in force if they are new and good; how things stand."""
        return self._reload.check()

    def check_soon(self) -> None:
        """Have the thread do that at once. For signals (SIGHUP): it does nothing itself."""
        if self.is_watching:
            self._wishes.put("check")

    def start(self, *, is_checked: bool = False) -> None:
        """Check now, then go on watching. Nothing if it is watching already.

        If it *is_checked* that what is in force is what the files say, or soon will be, nothing is
        read here: the thread does it.
        """
        with self._turn:
            if self.is_watching:
                return
            if not is_checked:
                self.check_now()
            self._wishes = queue.SimpleQueue()
            self._thread = threading.Thread(target=self._watch, args=(self._wishes,), daemon=True)
            self._thread.name = "headgate-policy-watcher"
            self._thread.start()

    def stop(self) -> None:
        """Watch no longer; when it returns, the thread has ended. What is in force stays."""
        with self._turn:
            thread, self._thread = self._thread, None
            if thread is None:
                return
            self._wishes.put("stop")
        if thread is not threading.current_thread():
            thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _watch(self, wishes: queue.SimpleQueue[_Wish]) -> None:
        wait = 0.0
        while True:
            try:
                wish = wishes.get(timeout=wait)
            except queue.Empty:
                wait = self._reload.look()
                continue
            if wish == "stop":
                return
            self._reload.check()


class AsyncPolicyWatcher(_Watching):
    """As `PolicyWatcher`, for an event loop, which it never holds up: a task that waits.

    The files are read in a thread, and *apply* (`AsyncRuleEngine.replace`) and *on_change* are
    called there too, one at a time: not in the thread of the loop.
    """

    _task: asyncio.Task[None] | None = None
    _wishes: asyncio.Queue[_Wish]

    @property
    def is_watching(self) -> bool:
        return self._task is not None and not self._task.done()

    async def check_now(self) -> State:
        """As `PolicyWatcher.check_now`."""
        return await asyncio.to_thread(self._reload.check)

    def check_soon(self) -> None:
        """Have the task do that at once. To be called in the loop (`loop.add_signal_handler`)."""
        if self.is_watching:
            self._wishes.put_nowait("check")

    async def start(self) -> None:
        """Check now, then go on watching. Nothing if it is watching already."""
        if not self.is_watching:
            await self.check_now()
        if self.is_watching:
            return
        self._wishes = asyncio.Queue()
        self._task = asyncio.create_task(self._watch(self._wishes), name="headgate-policy-watcher")
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Watch no longer; when it returns, the task has ended. What is in force stays."""
        task, self._task = self._task, None
        if task is None:
            return
        self._wishes.put_nowait("stop")
        await asyncio.wait([task])

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _watch(self, wishes: asyncio.Queue[_Wish]) -> None:
        wait = 0.0
        while True:
            try:
                async with asyncio.timeout(wait):
                    wish = await wishes.get()
            except TimeoutError:
                wait = await asyncio.to_thread(self._reload.look)
                continue
            if wish == "stop":
                return
            await asyncio.to_thread(self._reload.check)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Tell of a task that died; a thread's death is told by the interpreter."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            told = "%s: no longer watched, because of a mistake in what applies it"
            self._log.critical(told, self._reload.place, exc_info=error)
