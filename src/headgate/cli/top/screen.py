"""The live screen of `headgate top`.

A thread polls the service; its replies, keys and signals meet in one event loop, so that none of
them interrupts drawing. The terminal is restored in any case.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import threading
import tty
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live as RichLive

from headgate.cli.admin_client import AdminError
from headgate.cli.top.display import Picture, View, keys_in
from headgate.cli.top.figures import PATH, read_live
from headgate.terminal import is_terminal

if TYPE_CHECKING:
    from headgate.cli.admin_client import AdminClient
    from headgate.cli.top.figures import Live


def show(client: AdminClient, url: str, interval: float, rule: str | None) -> None:
    """Show the figures of *client*, every *interval* seconds, until the user quits.

    *rule* is the only one to show, if any. Raises `AdminError` if the first request fails and a
    repetition is of no use, and `KeyboardInterrupt` for Ctrl-C.
    """
    asyncio.run(_Screen(url, rule).run(client, interval))


class _Screen:
    """The picture on the terminal, and all that changes it."""

    def __init__(self, url: str, rule: str | None) -> None:
        for name in ("COLUMNS", "LINES"):  # the size of the terminal counts, which may change
            os.environ.pop(name, None)
        console = Console(force_terminal=True, highlight=False)
        self._screen = RichLive(console=console, screen=True, auto_refresh=False)
        self._picture = Picture(url, None, View(selected=rule, only=rule))
        self._latest: Live | None = None
        self._failed_s: float | None = None
        self._keyboard = sys.stdin.fileno() if is_terminal(sys.stdin) else None
        self._modes: list[Any] = []

    async def run(self, client: AdminClient, interval: float) -> None:
        loop = asyncio.get_running_loop()
        self._end: asyncio.Future[BaseException | None] = loop.create_future()
        for one in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(one, self._quit, None)
        loop.add_signal_handler(signal.SIGINT, lambda: self._quit(KeyboardInterrupt()))
        loop.add_signal_handler(signal.SIGWINCH, self._draw)
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        if self._keyboard is not None:
            loop.add_reader(self._keyboard, self._read_keys, self._keyboard)
        is_stopped = threading.Event()
        polling = threading.Thread(
            target=self._poll, args=(client, interval, is_stopped, loop), daemon=True
        )
        self._open()
        try:
            polling.start()
            error = await self._end
        finally:
            is_stopped.set()
            self._close()
        if error is not None:
            raise error

    def _quit(self, error: BaseException | None) -> None:
        if not self._end.done():
            self._end.set_result(error)

    def _poll(
        self,
        client: AdminClient,
        interval: float,
        is_stopped: threading.Event,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Request the figures until stopped. Runs in a thread, as a response may take seconds."""
        while not is_stopped.is_set():
            began_s = monotonic()
            try:
                result: Live | AdminError = read_live(client.get(PATH))
            except AdminError as error:
                result = error
            with suppress(RuntimeError):  # the loop may have ended
                loop.call_soon_threadsafe(self._receive, result, began_s)
            is_stopped.wait(max(0.0, interval - (monotonic() - began_s)))

    def _receive(self, result: Live | AdminError, began_s: float) -> None:
        trouble = ""
        if isinstance(result, AdminError):
            if result.is_final and self._latest is None:
                self._quit(result)
            self._failed_s = self._failed_s or began_s
            seconds = monotonic() - self._failed_s
            since = f" for {seconds:.0f} s" if seconds >= 1 else ""
            trouble = f"No figures from {self._picture.url}{since}: {result}. Retrying."
        else:
            self._latest, self._failed_s = result, None
        if not self._picture.view.is_paused:
            self._picture = replace(self._picture, live=self._latest, trouble=trouble)
            self._draw()

    def _read_keys(self, keyboard: int) -> None:
        pressed = os.read(keyboard, 4096)
        if not pressed:  # the terminal is closed
            self._quit(None)
        for key in keys_in(pressed):
            if key == "quit":
                self._quit(None)
            view = self._picture.view.after(key, self._picture.live)
            self._picture = replace(self._picture, view=view)
        self._draw()

    def _draw(self) -> None:
        self._screen.update(self._picture, refresh=True)

    def _suspend(self) -> None:
        self._close()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._open()

    def _open(self) -> None:
        if self._keyboard is not None:
            self._modes = termios.tcgetattr(self._keyboard)
            tty.setcbreak(self._keyboard)
        self._screen.start()
        self._draw()

    def _close(self) -> None:
        with suppress(OSError):  # the terminal may be closed
            self._screen.stop()
        if self._keyboard is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._modes)
