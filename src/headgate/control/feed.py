"""Keeping in force what a storage says is newest, for as long as the service runs.

    head ----> apply ----> watch ----> apply ... watch is lost ----> wait, and begin again

What the storage answers when it is asked (`head`) is the truth, an older number included: it was
restored from a backup then. What a watch brings counts only if it is newer; anything else makes the
feed ask. One answer is not believed: that there is nothing at all, after there was something. A
storage that was emptied by mistake must not take every limit away, so the last good policy stays
until something is written, whatever its number; after a restart that is the one that was kept.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from headgate.control.file_source import UnreadableFileError
from headgate.control.files import clear_leftovers, replace_file
from headgate.control.revision import StorageError, revision_from_json
from headgate.control.supervised_task import EndlessTask
from headgate.errors import HeadgateError
from headgate.policy.loader import RuleMemory, examine_policy_data
from headgate.policy.problems import PolicyError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Self

    from headgate.clock import Clock
    from headgate.control.revision import Change, Revision
    from headgate.control.storage import PolicyStorage
    from headgate.policy.model import Policy


# How a feed of policies stands, for readiness, metrics and people.


@dataclass(frozen=True, slots=True)
class FeedState:
    """What is in force, and what keeps the newest from being so.

    *revision*, *change* and *loaded_at_ns* (since the epoch) are of the policy in force, None
    before there is one; the number is the storage's. *is_stale*: the storage could not be asked
    when it was last tried, so there may be a newer one; *trouble* says why. *problems* is what is
    wrong with a newer revision that cannot be put in force, *refused* its number if it has one.
    *failures* counts the revisions that could not be. *warnings* are about the policy in force.
    """

    revision: int | None = None
    change: Change | None = None
    loaded_at_ns: int | None = None
    is_stale: bool = False
    trouble: str | None = None
    problems: tuple[Problem, ...] | None = None
    refused: int | None = None
    failures: int = 0
    warnings: tuple[Problem, ...] = ()

    @property
    def is_current(self) -> bool:
        """Whether the newest revision is in force, as far as anybody knows."""
        return self.revision is not None and not self.is_stale and self.problems is None

    @property
    def not_ready(self) -> tuple[str, ...]:
        """Why requests should not be decided yet, in words. A stale policy is better than none."""
        if self.revision is not None:
            return ()
        if self.problems is not None and self.refused is not None:
            return (f"no policy is in force: revision {self.refused} cannot be read",)
        return (f"no policy is in force: {self.trouble or 'none has been read yet'}",)


# The last good revision on the disk of this machine, to start on while the storage is down.


_OLD: Final = 60.0


class KeptRevision:
    """A copy in *path*, replaced as a whole. Several processes may write it: the last one wins."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Revision | None:
        """What was kept; None if nothing was. Raises `StorageError`."""
        try:
            return revision_from_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{self._path}: {error.strerror or error}") from error

    def write(self, revision: Revision) -> None:
        """Keep *revision*. Raises `StorageError`."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path, revision.to_json())
        except OSError as error:
            raise StorageError(f"{self._path}: {error.strerror or error}") from error

    def clear_leftovers(self) -> None:
        """Remove what a killed process left behind, and nothing that another is about to write."""
        clear_leftovers(self._path, age=_OLD)


LOG: Final = logging.getLogger("headgate.control")
FIRST_WAIT: Final = 0.1
"""Seconds before the second attempt to reach a storage; twice as long before each further one."""
LONGEST_WAIT: Final = 5.0
LONGEST_WATCH: Final = 60.0
"""Seconds after which the storage is asked whether or not a watch brought something: watches have
been known to fall silent."""


class PolicyFeed:
    """Puts the newest revision of *storage* in force by *apply*, and every one after it.

    *apply* (`AsyncRuleEngine.replace`) is called in the event loop, one at a time; a
    `HeadgateError` of it is told like a policy that cannot be read. *keep* is a file for the last
    good revision: it is what a service starts on while its storage is down. *longest_wait* is the
    most seconds between two attempts to reach the storage, *longest_watch* after which it is asked
    in any case. *on_change* hears of each new state.
    """

    def __init__(
        self,
        storage: PolicyStorage,
        apply: Callable[[Policy], int],
        *,
        keep: Path | None = None,
        on_change: Callable[[FeedState], None] | None = None,
        longest_wait: float = LONGEST_WAIT,
        longest_watch: float = LONGEST_WATCH,
        log: logging.Logger = LOG,
        clock: Clock = time.time_ns,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._storage = storage
        self._apply = apply
        self._kept = None if keep is None else KeptRevision(keep)
        self._on_change = on_change
        self._longest_wait = longest_wait
        self._longest_watch = longest_watch
        self._log = log
        self._clock = clock
        self._jitter = jitter
        self._turn = asyncio.Lock()
        self._in_force: Revision | None = None
        self._refused: Revision | None = None
        self._following = EndlessTask(
            self._follow,
            name="headgate-policy-feed",
            pause=longest_wait,
            on_mistake=self._mistaken,
            log=log,
        )
        self._asked = asyncio.Event()
        self.memory = RuleMemory()
        """What was read of the rules, for whoever reads more of them."""
        self.state = FeedState()

    @property
    def place(self) -> str:
        """Where the revisions come from."""
        return self._storage.place

    async def start(self) -> None:
        """Put the newest revision in force, or the one that was kept; then go on in a task.

        It returns after one attempt, whether there is a policy then or not: see `state`.
        """
        try:
            await self._ask()
        except StorageError as error:
            self._lose(error)
        if self._in_force is None:
            async with self._turn:
                await self._fall_back()
        self._following.start()

    async def learn(self, revision: Revision) -> None:
        """Put *revision* in force now if it is newer: one that was just committed here."""
        async with self._turn:
            if self._in_force is None or revision.number > self._in_force.number:
                await self._take(revision)

    def check_soon(self) -> None:
        """Ask the storage now, if it could not be asked lately. For signals; never waits."""
        self._asked.set()

    async def aclose(self) -> None:
        """Follow no longer. What is in force stays; the storage is its owner's to close."""
        await self._following.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _follow(self) -> None:
        attempts = 0
        while True:
            try:
                await self._watch()
                attempts = 0
            except StorageError as error:
                attempts = 1 if not self.state.is_stale else attempts + 1
                if isinstance(error, UnreadableFileError):  # somebody is at it, and will be done
                    attempts = 1
                self._lose(error)
            await self._wait(attempts)

    async def _watch(self) -> None:
        """Ask, then watch until it is lost or brings what must be asked about."""
        newest = await self._ask()
        watch = self._storage.watch(newest.number)
        with suppress(TimeoutError):
            async with aclosing(watch) as revisions, asyncio.timeout(self._longest_watch):  # type: ignore[type-var]
                async for revision in revisions:
                    if self._is_doubtful(revision):
                        return
                    await self.learn(revision)

    def _is_doubtful(self, revision: Revision) -> bool:
        """Whether only the storage can say what *revision* is: late, or of a storage set back."""
        newest = self._in_force
        return newest is not None and revision.number <= newest.number and revision != newest

    async def _wait(self, attempts: int) -> None:
        """Longer from attempt to attempt, and not all nodes at once."""
        self._asked.clear()
        longest = min(self._longest_wait, FIRST_WAIT * 2 ** min(attempts, 20))
        try:
            async with asyncio.timeout(longest * (0.5 + self._jitter() / 2)):
                await self._asked.wait()
        except TimeoutError:
            return

    async def _ask(self) -> Revision:
        """What the storage says is newest, put in force if it is not."""
        newest = await self._storage.head()
        async with self._turn:
            if self.state.is_stale:
                self._log.info("%s: can be asked again", self.place)
            if self.state.is_stale or self.state.trouble is not None:
                self._become(replace(self.state, is_stale=False, trouble=None))
            if newest == self._in_force:
                self._forget_refused()
            elif newest.number == 0 and await self._had_something():
                self._tell_emptied()
            else:
                self._tell_set_back(newest)
                await self._take(newest)
        return newest

    async def _had_something(self) -> bool:
        """Whether there were rules once: before the storage was asked, or before we were started.

        What was kept of them is in force then. The caller has the turn.
        """
        if self._in_force is None:
            await self._fall_back()
        return self._in_force is not None and self._in_force.number > 0

    def _tell_emptied(self) -> None:
        told = (
            f"there are no rules there any more; revision {self.state.revision} stays in force "
            "until something is written"
        )
        problem = Problem("error", self.place, told)
        if self.state.problems != (problem,):
            self._log.error("%s: %s", self.place, told)
            self._become(replace(self.state, problems=(problem,), refused=0))

    def _tell_set_back(self, newest: Revision) -> None:
        before = self._in_force
        if before is not None and newest.number <= before.number:
            told = "%s: was set back from revision %d to %d"
            self._log.warning(told, self.place, before.number, newest.number)

    async def _take(self, revision: Revision, *, is_kept: bool = False) -> None:
        """Put *revision* in force if it is a policy; told if not, once. The caller has the turn."""
        if revision == self._refused:
            return
        examined = await asyncio.to_thread(
            examine_policy_data, revision.document, memory=self.memory
        )
        problems = examined.problems
        if examined.policy is not None:
            try:
                self._apply(replace(examined.policy, revision=revision.number))
            except PolicyError as error:
                problems = error.problems
            except HeadgateError as error:
                told = f"it was refused by what applies it: {str(error) or type(error).__name__}"
                problems = (Problem("error", self.place, told),)
            else:
                await self._took(revision, problems, is_kept=is_kept)
                return
        self._refuse(revision, problems)

    async def _took(
        self, revision: Revision, warnings: tuple[Problem, ...], *, is_kept: bool
    ) -> None:
        self._in_force = revision
        if not is_kept:
            self._refused = None
        told = "%s: revision %d is in force (%s, by %s); rules: %d"
        change, rules = revision.change, revision.document.get("rules") or ()
        who = change.author or "nobody"
        self._log.info(told, self.place, revision.number, change.what, who, len(rules))
        if warnings:
            told = "%s: revision %d is in force, with warnings\n%s"
            self._log.warning(told, self.place, revision.number, _lines(warnings))
        self._become(
            replace(
                self.state,
                revision=revision.number,
                change=change,
                loaded_at_ns=self._clock(),
                problems=None,
                refused=None,
                warnings=warnings,
            )
        )
        if self._kept is not None and not is_kept and revision.number > 0:
            await self._keep(self._kept, revision)

    def _refuse(self, revision: Revision, problems: tuple[Problem, ...]) -> None:
        self._refused = revision
        told = "%s: revision %d cannot be put in force; in force stays %s\n%s"
        kept = self.state.revision
        stays = "nothing" if kept is None else f"revision {kept}"
        self._log.error(told, self.place, revision.number, stays, _lines(problems))
        failures = self.state.failures + 1
        number = revision.number
        self._become(replace(self.state, problems=problems, refused=number, failures=failures))

    def _forget_refused(self) -> None:
        """What is in force is the newest; perhaps it was not for a while."""
        self._refused = None
        if self.state.problems is not None:
            self._become(replace(self.state, problems=None, refused=None))

    async def _keep(self, kept: KeptRevision, revision: Revision) -> None:
        try:
            await asyncio.to_thread(kept.write, revision)
        except StorageError as error:
            self._log.warning("revision %d cannot be kept: %s", revision.number, error)

    async def _fall_back(self) -> None:
        """Begin with the revision that was kept. The caller has the turn."""
        if self._kept is None:
            return
        try:
            await asyncio.to_thread(self._kept.clear_leftovers)
            revision = await asyncio.to_thread(self._kept.read)
        except StorageError as error:
            self._log.warning("the policy that was kept cannot be used: %s", error)
            return
        if revision is None:
            return
        number = revision.number
        told = "%s: starting on revision %d, the last good one, as it was kept here"
        self._log.warning(told, self.place, number)
        before = self.state
        await self._take(revision, is_kept=True)
        if before.problems is not None and self._in_force is not None:
            # The newest is still refused: only what is in force has changed.
            problems, refused = before.problems, before.refused
            self._become(replace(self.state, problems=problems, refused=refused))

    def _lose(self, error: StorageError) -> None:
        told = str(error)
        if self.state.trouble != told:
            kept = self.state.revision
            stays = "nothing is in force" if kept is None else f"revision {kept} stays in force"
            problems = self.state.problems
            what = "cannot be asked"
            if isinstance(error, UnreadableFileError):
                problems, what = error.problems, "no policy now"
            self._log.warning("%s: %s; %s: %s", self.place, what, stays, told)
            self._become(replace(self.state, is_stale=True, trouble=told, problems=problems))

    def _become(self, state: FeedState) -> None:
        self.state = state
        if self._on_change is not None:
            self._on_change(state)

    def _mistaken(self, error: BaseException) -> None:
        trouble = f"no longer followed, because of a mistake: {type(error).__name__}"
        self._become(replace(self.state, is_stale=True, trouble=trouble))


def _lines(problems: Sequence[Problem]) -> str:
    return "\n".join(str(problem) for problem in problems)
