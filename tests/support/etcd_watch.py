"""A node that watches a policy in etcd and records what it reads."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self

from headgate.control.revision import Revision, SourceError

if TYPE_CHECKING:
    from headgate.control.etcd import EtcdSource

SOON = 60.0
"""Seconds after which a test gives up."""


class Watcher:
    """The revisions of *source* from now on; goes on after `SourceError`, as a node would.

    Use a source that nothing else reads.
    """

    def __init__(self, source: EtcdSource) -> None:
        self.given: list[Revision] = []
        self.losses: list[SourceError] = []
        self._source = source
        self._news = threading.Condition()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._is_over:
            try:
                newest = self._source.head()
                if newest != (self.given[-1] if self.given else Revision(0)):
                    self.given.append(newest)
                    self._tell()
                if not self._is_over:
                    self._source.wait(newest, 60)
            except SourceError as error:
                self.losses.append(error)
                self._tell()
                time.sleep(0.05)

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()

    def until(self, condition: Any) -> None:
        with self._news:
            assert self._news.wait_for(lambda: condition(self), SOON), (self.given, self.losses)

    def reaches(self, number: int) -> None:
        """Wait until the newest that was read is *number*."""
        self.until(lambda self: self.given and self.given[-1].number == number)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._source.wake()
        self._thread.join(SOON)
        assert not self._thread.is_alive()


def committed(source: EtcdSource, wanted: Revision) -> None:
    """Commit *wanted*, and wait for the server if need be."""
    deadline = time.monotonic() + SOON
    while True:
        try:
            source.commit(wanted)
        except SourceError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            return
