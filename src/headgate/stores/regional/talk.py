"""Several messages at the same time, by threads: over a slow link most of the time is waiting."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headgate.stores.port import Store
    from headgate.stores.regional.exchange import Exchange
    from headgate.stores.regional.tally import Message

MOST_SPEAKERS: Final = 16
"""Messages that are under way to one region at the same time."""


class Talk:
    """All that the region of number *peer*, whose store is *store*, has to be told now."""

    def __init__(self, exchange: Exchange, peer: int, store: Store) -> None:
        self._exchange = exchange
        self._peer = peer
        self._store = store
        self._name = f"headgate-region-{exchange.links[peer].peer}-more"
        self._left: Iterator[Message] = exchange.messages(peer)
        self._lock = threading.Lock()
        self._is_over = False
        self._failure: HeadgateError | None = None

    def tell(self) -> bool:
        """Tell it; whether everything was heard.

        A region that did not hear the last time is told one message after another.
        """
        first = self._next()
        if first is None:
            return True
        speakers = self._speakers() if self._exchange.links[self._peer].is_up else []
        self._say_on(first)
        for speaker in speakers:
            speaker.join()
        self._exchange.went(self._peer, self._failure)
        return self._failure is None

    def _speakers(self) -> list[threading.Thread]:
        """A thread for each further message, up to a number; each goes on with what is left."""
        speakers: list[threading.Thread] = []
        while len(speakers) < MOST_SPEAKERS - 1 and (message := self._next()) is not None:
            speaker = threading.Thread(
                target=self._say_on, args=(message,), daemon=True, name=self._name
            )
            try:
                speaker.start()
            except RuntimeError:  # too many threads, or the process ends: it is told the next time
                self._is_over = True
                break
            speakers.append(speaker)
        return speakers

    def _next(self) -> Message | None:
        with self._lock:
            return None if self._is_over else next(self._left, None)

    def _say_on(self, message: Message | None) -> None:
        """Say *message*, and then what is left."""
        while message is not None:
            try:
                outcomes = self._store.run(message.absorb)
            except HeadgateError as error:
                self._failure = error
                if getattr(error, "reason", "refused") != "refused":
                    self._is_over = True  # the others would fare no better, but for one refused
            else:
                self._exchange.heard(self._peer, message, outcomes)
            message = self._next()
