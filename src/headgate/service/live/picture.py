"""The live picture of one worker, and of all workers of its node as far as it can see.

Once a second it looks at what was counted, and leaves a snapshot on its board. When somebody asks,
it leaves one too, and reads the others': so whoever answers next tells no less than was told
before. Whatever fails here is told in the log, once; no request is any worse for it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headgate.observability import JOURNAL, MEASURES
from headgate.observability.candidates import CANDIDATES, merged_candidates
from headgate.runtime.supervised_task import SupervisedTask
from headgate.service.live import merging
from headgate.service.live.boards import BoardError, Former
from headgate.service.live.measures import DECISIONS, Writer
from headgate.service.live.merging import encoded_picture, merged_picture
from headgate.service.live.recorder import Recorder
from headgate.service.live.snapshot import RingPacker, Snapshot, SnapshotError, json_of, written
from headgate.service.live.standing import Standing
from headgate.service.logs import LOG
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.clock import Clock
    from headgate.control.watcher import PolicyWatcher
    from headgate.observability import Journal, Measures
    from headgate.observability.metrics import Labels
    from headgate.policy.model import Policy
    from headgate.service.core import Core
    from headgate.service.live.boards import Boards

T = TypeVar("T")

_AFTER_NS: Final = 2_000_000
"""How long after a second has ended its points are put down."""

TRIALS_NS: Final = 5 * SECOND
KEYS_NS: Final = 3 * SECOND
"""How old what is told of rules in shadow, and of the busiest keys, may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """The store's URL, without a password, and this worker's number."""

    store: str = "memory://"
    worker: int = 0


class _Lasting(Generic[T]):
    """What *make* says, for *lasts_ns*."""

    def __init__(self, lasts_ns: int, make: Callable[[], T]) -> None:
        self._lasts_ns = lasts_ns
        self._make = make
        self._made: tuple[int, T] | None = None

    def value(self, now_ns: int, *, is_new: bool) -> T:
        """It as it is now, or if it need not be new as it was a moment ago."""
        if is_new or self._made is None or now_ns >= self._made[0]:
            self._made = now_ns + self._lasts_ns, self._make()
        return self._made[1]


class Live:
    """What `/admin/v1/live` and `/metrics` tell. *boards* are None where there is one worker.

    *store_trouble* says in words what is wrong with the store, if it is not *core* that does.
    `start` it in the event loop; it works without, but then has only points of when it was asked.
    """

    def __init__(
        self,
        core: Core,
        watcher: PolicyWatcher | None = None,
        *,
        options: LiveOptions | None = None,
        boards: Boards | None = None,
        store_trouble: Callable[[], tuple[str, ...]] | None = None,
        journal: Journal = JOURNAL,
        measures: Measures = MEASURES,
        monotonic: Clock = time.monotonic_ns,
    ) -> None:
        self.options = options or LiveOptions()
        self._clock = core.clock
        self._monotonic = monotonic
        self._boards = boards
        self._measures = measures
        self._recorder = Recorder(journal)
        self._standing = Standing(
            core=core,
            watcher=watcher,
            journal=journal,
            store=self.options.store,
            trouble=store_trouble or core.trouble,
            worker=self.options.worker,
            began_ns=core.clock(),
        )
        self._packers = RingPacker(self._recorder.seconds), RingPacker(self._recorder.minutes)
        self._ticking = SupervisedTask(self._tick, name="headgate-live", pause=1.0)
        self._former = Former()
        self._trials = _Lasting(TRIALS_NS, lambda: json_of(self._all_trials()))
        self._keys = _Lasting(KEYS_NS, self._standing.keys)
        self._policy: Policy | None = None
        self._leaving = threading.Lock()
        self._made = self._left = 0
        self._has_failed = False
        self._unread: set[int] = set()
        self._writer = Writer()
        self._asking = asyncio.Lock()
        self._next_answer: asyncio.Future[bytes] | None = None

    def start(self) -> None:
        """Look once a second from now on; go on from what a worker of the same number has left."""
        data = None if self._boards is None else self._boards.read(self.options.worker)
        if data is not None:
            try:
                self._former = Former.of(Snapshot.decoded(data))
            except SnapshotError as error:
                LOG.warning("what the worker before this one has counted is lost: %s", error)
        series = self._former.series
        if series is not None:
            self._recorder.restore(*series)
        self._recorder.look(self._clock())
        self._ticking.start()

    async def aclose(self) -> None:
        """Look no more; what was counted until now stays on the board."""
        await self._ticking.aclose()
        self._recorder.finish(self._clock())
        self.publish()

    async def picture(self) -> dict[str, Any]:
        """All there is to see, of all workers."""
        own = self._snapshot()
        rules = self._standing.rules()
        return await asyncio.to_thread(self._left_and_merged, own, rules)

    async def answer(self) -> bytes:
        """The same as JSON. Many may ask: they are answered one after the other, and those who
        wait for their turn are answered together."""
        if self._next_answer is None:
            self._next_answer = asyncio.ensure_future(self._answer())
        return await asyncio.shield(self._next_answer)

    async def text(self) -> str:
        """The measures of all workers, as Prometheus reads it."""
        own = self._snapshot(in_full=False)
        return await asyncio.to_thread(self._left_and_told, own)

    def publish(self) -> Snapshot:
        """Leave a snapshot of now on the board; it is returned."""
        made = self._snapshot()
        self._leave(*made)
        return made[1]

    def _snapshot(self, *, in_full: bool = True) -> tuple[int, Snapshot]:
        """A snapshot of now, and its number.

        What rules in shadow would have done, and which keys are the busiest, is much work and
        changes little: unless *in_full*, it is that of a few seconds ago. Of another policy the
        rules in shadow are others, which is told at once.
        """
        now_ns = self._monotonic()
        policy = self._standing.core.rules.in_force.policy
        is_other, self._policy = policy is not self._policy, policy
        self._recorder.look(self._clock())
        told = self._measures.snapshot(bare=(DECISIONS,))
        keys = self._keys.value(now_ns, is_new=in_full)
        latency = self._recorder.latency.counts()
        state = self._standing.state(told=told, latency=latency, seen_ns=now_ns, keys=keys)
        seconds, minutes = self._packers
        self._made += 1
        return self._made, Snapshot(
            standing=json_of(self._former.added_to(state)),
            measures=written(told),
            cells=self._recorder.cells.packed(),
            former=self._former.cells,
            seconds=seconds.packed(),
            minutes=minutes.packed(),
            trials=self._trials.value(now_ns, is_new=in_full or is_other),
        )

    def _all_trials(self) -> list[dict[str, Any]]:
        return [CANDIDATES.snapshot(), *self._former.candidates]

    async def _answer(self) -> bytes:
        async with self._asking:
            self._next_answer = None
            found = await self.picture()
            return await asyncio.to_thread(encoded_picture, found)

    async def _tick(self) -> None:
        while True:
            now_ns = self._clock()
            pause_ns = SECOND - now_ns % SECOND + _AFTER_NS
            await asyncio.sleep(pause_ns / SECOND)
            if self._boards is None:
                self._recorder.look(self._clock())
            else:
                await asyncio.to_thread(self._leave, *self._snapshot(in_full=False))

    def _leave(self, number: int, snapshot: Snapshot) -> None:
        """Leave *snapshot* on the board. In whatever thread: what is older than what is there
        already is not left."""
        if self._boards is None:
            return
        with self._leaving:
            if number > self._left:
                self._left = number
                self._write(self._boards, snapshot)

    def _write(self, boards: Boards, snapshot: Snapshot) -> None:
        board = self.options.worker
        try:
            try:
                boards.write(board, snapshot.encoded())
            except BoardError:
                boards.write(board, snapshot.without_series().encoded())
                raise
        except BoardError as error:
            if not self._has_failed:
                told = "other workers will not tell all of what this one does: %s"
                LOG.warning(told, error)
            self._has_failed = True
        else:
            self._has_failed = False

    def _on_board(self, board: int) -> Snapshot | None:
        data = None if self._boards is None else self._boards.read(board)
        if data is None:
            return None
        try:
            found = Snapshot.decoded(data)
        except SnapshotError as error:
            if board not in self._unread:
                LOG.warning("what worker %d does is not told by this one: %s", board, error)
            self._unread.add(board)
            return None
        self._unread.discard(board)
        return found

    def _all(self, own: Snapshot) -> list[tuple[Labels, Snapshot]]:
        """Those of all workers, in the order of their numbers, with the labels that mark them."""
        if self._boards is None:
            return [((), own)]
        found: list[tuple[Labels, Snapshot]] = []
        for board in range(self._boards.count):
            # If it could not be left, the others know less: then this worker tells no more.
            is_own = board == self.options.worker
            snapshot = None if is_own and not self._has_failed else self._on_board(board)
            if is_own and snapshot is None:
                snapshot = own
            if snapshot is not None:
                found.append(((("worker", str(board)),), snapshot))
        return found

    def _left_and_told(self, made: tuple[int, Snapshot]) -> str:
        """Their measures; before, what was *made* is left where others can tell it too."""
        self._leave(*made)
        return self._all_told(made[1])

    def _left_and_merged(
        self, made: tuple[int, Snapshot], rules: Sequence[merging.Declared]
    ) -> dict[str, Any]:
        self._leave(*made)
        return self._merged(made[1], rules)

    def _all_told(self, own: Snapshot) -> str:
        since_ns = self._monotonic() - merging.FORGOTTEN_NS
        return self._writer.text(
            (one, marks, one.seen_ns() >= since_ns) for marks, one in self._all(own)
        )

    def _merged(self, own: Snapshot, rules: Sequence[merging.Declared]) -> dict[str, Any]:
        found = [one for _, one in self._all(own)]
        heard = [(one.state(), one.series()) for one in found]
        at_ns = self._clock()
        told = merged_picture(heard, rules, now_ns=self._monotonic(), at_ns=at_ns)
        candidates = [trial for one in found for trial in one.candidates()]
        return {**told, "candidates": merged_candidates(candidates, at_ns / SECOND)}
