"""Asking a service again and again, in a thread of its own, so that keys are never waited with."""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final

from headgate.cli.top.asking import LookError
from headgate.cli.top.live import Live, read_live
from headgate.cli.top.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.cli.top.asking import Asker

_EARLIER: Final = 10
"""So many answers ago is what the latest is held against."""


class Watch:
    """What *asker* heard last, asked every *interval* seconds; *wake* is called after each."""

    def __init__(self, asker: Asker, url: str, interval: float, wake: Callable[[], None]) -> None:
        self._asker = asker
        self._url = url
        self._interval = interval
        self._wake = wake
        self._heard: deque[Live] = deque(maxlen=_EARLIER + 1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headgate-top", daemon=True)
        self.scene = Scene(None, url)
        """What there is to show: replaced as a whole."""
        self.final: LookError | None = None
        """Why the very first question was refused, and any other would be."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask no more, and close the connection when that is known. It is not waited for: an answer
        may be seconds away."""
        self._stop.set()

    def join(self, seconds: float) -> None:
        """Wait until it has stopped, so long at most."""
        self._thread.join(seconds)

    def _run(self) -> None:
        lost_at: float | None = None
        while not self._stop.is_set():
            began = monotonic()
            try:
                self._hear(read_live(self._asker.look()))
                lost_at = None
            except LookError as error:
                if error.is_final and not self._heard:
                    self.final = error
                lost_at = lost_at or began
                self._lose(error, monotonic() - lost_at)
            self._wake()
            self._stop.wait(max(0.0, self._interval - (monotonic() - began)))
        self._asker.close()

    def _hear(self, live: Live) -> None:
        self._heard.append(live)
        earlier = self._heard[0] if len(self._heard) > 1 else None
        self.scene = Scene(live, self._url, earlier)

    def _lose(self, error: LookError, seconds: float) -> None:
        since = f" for {seconds:.0f} s" if seconds >= 1 else ""
        told = f"{self._url} does not say how it stands{since}: {error}; trying again"
        self.scene = Scene(self.scene.live, self._url, self.scene.earlier, told)
