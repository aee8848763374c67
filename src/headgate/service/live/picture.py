"""The live picture of one worker, and of all workers of its node as far as it can see.

Once a second it looks at what was counted, and leaves a snapshot on its board. When somebody asks,
it leaves one too, and reads the others': so whoever answers next tells no less than was told
before. Whatever fails here is told in the log, once; no request is any worse for it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headgate.control.endless import EndlessTask
from headgate.observability import JOURNAL, MEASURES
from headgate.observability.candidates import CANDIDATES, merged_candidates
from headgate.service.live import merging
from headgate.service.live.boards import BoardError
from headgate.service.live.former import Former
from headgate.service.live.recorder import Recorder
from headgate.service.live.snapshot import Snapshot, SnapshotError, json_of, text_of_all
from headgate.service.live.standing import Standing
from headgate.service.live.whole import encoded_picture, merged_picture
from headgate.service.logs import LOG
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headgate.clock import Clock
    from headgate.control.feed import PolicyFeed
    from headgate.observability import Journal, Measures
    from headgate.service.core import Core
    from headgate.service.live.boards import Boards
    from headgate.service.live.snapshot import Family

_AFTER_NS: Final = 2_000_000
"""How long after a second has ended its points are put down."""


TRIALS_NS: Final = 5 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """The store's URL, without a password, and this worker's number."""

    store: str = "memory://"
    worker: int = 0


class Live:
    """What `/admin/v1/live` and `/metrics` tell. *boards* are None where there is one worker.

    *store_trouble* says in words what is wrong with the store, if it is not *core* that does.
    `start` it in the event loop; it works without, but then has only points of when it was asked.
    """

    def __init__(
        self,
        core: Core,
        feed: PolicyFeed | None = None,
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
            feed=feed,
            journal=journal,
            store=self.options.store,
            trouble=store_trouble or core.trouble,
            worker=self.options.worker,
            began_ns=core.clock(),
        )
        self._ticking = EndlessTask(self._tick, name="headgate-live", pause=1.0)
        self._has_failed = False
        self._former = Former()
        self._trials = b""
        self._trials_until_ns = 0

    def start(self) -> None:
        """Look once a second from now on; go on from what a worker of the same number has left."""
        left = self._on_board(self.options.worker)
        if left is not None:
            try:
                self._former = Former.of(left)
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
        self.publish()

    async def picture(self) -> dict[str, Any]:
        """All there is to see, of all workers."""
        own = self.publish()
        rules = self._standing.rules()
        return await asyncio.to_thread(self._merged, own, rules)

    async def answer(self) -> bytes:
        """The same as JSON."""
        found = await self.picture()
        return await asyncio.to_thread(encoded_picture, found)

    async def text(self) -> str:
        """The measures of all workers, as Prometheus reads it."""
        if self._boards is None:
            return self._measures.text()
        own = self.publish(with_trials=False)
        return await asyncio.to_thread(self._all_told, own)

    def publish(self, *, with_trials: bool = True) -> Snapshot:
        """Leave a snapshot of now on the board; it is returned.

        What rules in shadow would have done is much to tell and changes little: unless
        *with_trials*, it is that of up to `TRIALS_NS` ago.
        """
        self._recorder.look(self._clock())
        told = self._measures.told()
        latency = self._recorder.latency.counts()
        state = self._standing.state(told=told, latency=latency, seen_ns=self._monotonic())
        state = self._former.added_to(state)
        trials = self._candidates(is_new=with_trials)
        snapshot = Snapshot.of(state, told, self._recorder, trials=trials)
        if self._boards is not None:
            self._leave(self._boards, snapshot)
        return snapshot

    async def _tick(self) -> None:
        while True:
            now_ns = self._clock()
            pause_ns = SECOND - now_ns % SECOND + _AFTER_NS
            await asyncio.sleep(pause_ns / SECOND)
            if self._boards is None:
                self._recorder.look(self._clock())
            else:
                self.publish(with_trials=False)

    def _candidates(self, *, is_new: bool) -> bytes:
        now_ns = self._monotonic()
        if is_new or now_ns >= self._trials_until_ns:
            self._trials = json_of([CANDIDATES.snapshot(), *self._former.candidates])
            self._trials_until_ns = now_ns + TRIALS_NS
        return self._trials

    def _leave(self, boards: Boards, snapshot: Snapshot) -> None:
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
            return Snapshot.decoded(data)
        except SnapshotError:
            return None

    def _all(self, own: Snapshot) -> list[Snapshot]:
        """Those of all workers, in the order of their numbers."""
        if self._boards is None:
            return [own]
        found = [self._on_board(board) for board in range(self._boards.count)]
        found[self.options.worker] = found[self.options.worker] or own
        return [one for one in found if one is not None]

    def _all_told(self, own: Snapshot) -> str:
        now_ns = self._monotonic()
        families: list[Family] = []
        for one in self._all(own):
            is_here = bool(merging.fresh([one.state()], now_ns))
            families += [family for family in one.families() if is_here or family.kind != "gauge"]
        return text_of_all(families)

    def _merged(self, own: Snapshot, rules: Sequence[merging.Declared]) -> dict[str, Any]:
        found = self._all(own)
        heard = [(one.state(), one.series()) for one in found]
        at_ns = self._clock()
        told = merged_picture(heard, rules, now_ns=self._monotonic(), at_ns=at_ns)
        candidates = [trial for one in found for trial in one.candidates()]
        return {**told, "candidates": merged_candidates(candidates, at_ns / SECOND)}
