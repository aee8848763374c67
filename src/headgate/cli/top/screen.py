"""The live screen of `headgate top`: a terminal in raw key mode, redrawn until the user quits.

Signals (a new size, the end, a stop, Ctrl-C) arrive as bytes in `Screen.wait`, so that none of them
interrupts drawing. The terminal is restored in any case.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import threading
import tty
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TextIO

from rich.console import Console, ConsoleDimensions
from rich.control import Control
from rich.screen import Screen as FullScreen

from headgate.cli.top.client import Poller
from headgate.cli.top.display import Picture, View

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from rich.console import RenderableType

    from headgate.cli.top.client import LiveClient

_SIGNALS: Final = (
    signal.SIGINT,  # a shell ignores it in background jobs
    signal.SIGWINCH,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGTSTP,
)
_SEQUENCE: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])|.", re.DOTALL)
_NAMES: Final = {
    **dict.fromkeys((b"\x1b[A", b"\x1bOA", b"k"), "up"),
    **dict.fromkeys((b"\x1b[B", b"\x1bOB", b"j"), "down"),
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    **dict.fromkeys((b"\x1b[H", b"\x1b[1~", b"g"), "first"),
    **dict.fromkeys((b"\x1b[F", b"\x1b[4~", b"G"), "last"),
    **dict.fromkeys((b"\r", b"\n"), "open"),
    **dict.fromkeys((b"\x1b", b"\x7f"), "back"),
    b"s": "sort",
    **dict.fromkeys((b"p", b" "), "pause"),
    **dict.fromkeys((b"?", b"h"), "help"),
    **dict.fromkeys((b"q", b"Q", b"\x03", b"\x04"), "quit"),
}


def keys_in(pressed: bytes) -> list[str]:
    """The names of the keys in *pressed*, the bytes that a terminal sent; unknown ones left out."""
    found = (_NAMES.get(one) for one in _SEQUENCE.findall(pressed))
    return [name for name in found if name is not None]


class Screen:
    """The terminal *output* with keys from *keyboard*, if that is a terminal too.

    Use it with `with`, in the main thread.
    """

    def __init__(self, keyboard: TextIO | None, output: TextIO) -> None:
        self._keyboard = keyboard.fileno() if keyboard is not None and keyboard.isatty() else None
        self._console = Console(file=output, force_terminal=True, highlight=False)
        self._before: list[Any] | None = None
        self._handlers: dict[signal.Signals, Any] = {}
        self._wakeup_fd = -1
        self._waking = threading.Lock()
        self._is_open = True
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)

    def __enter__(self) -> Screen:
        for one in _SIGNALS:
            self._handlers[one] = signal.signal(one, _ignore)
        # The interpreter writes the signal's number in any thread. A handler runs later, and not
        # at all while the main thread is about to sleep in `select`.
        self._wakeup_fd = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()
        signal.set_wakeup_fd(self._wakeup_fd)
        for one, handler in self._handlers.items():
            signal.signal(one, handler)
        with self._waking:  # `wake` must not write to a descriptor that is reused
            self._is_open = False
            os.close(self._woken)
            os.close(self._waker)

    def fit(self) -> int:
        """Adopt the size of the terminal, whatever COLUMNS and LINES say; return the rows."""
        with suppress(OSError):
            columns, rows = os.get_terminal_size(self._console.file.fileno())
            self._console.size = ConsoleDimensions(columns or 80, rows or 24)
        return self._console.height

    def draw(self, picture: RenderableType) -> None:
        """Fill the screen with *picture*."""
        with self._console:  # one write
            self._console.control(Control.home())
            self._console.print(FullScreen(picture), end="")

    def wake(self) -> None:
        """Let `wait` return. For any thread."""
        with self._waking, suppress(BlockingIOError):  # a full pipe wakes as well
            if self._is_open:
                os.write(self._waker, b"\0")

    def wait(self) -> bytes | None:
        """Wait for keys, a signal or `wake`, and return the keys; None means to end.

        Raises `KeyboardInterrupt` for Ctrl-C.
        """
        watched = [self._woken] if self._keyboard is None else [self._woken, self._keyboard]
        ready, _, _ = select.select(watched, [], [])
        if self._woken in ready:
            happened = os.read(self._woken, 4096)
            if signal.SIGINT in happened:
                raise KeyboardInterrupt
            if signal.SIGTERM in happened or signal.SIGHUP in happened:
                return None
            if signal.SIGTSTP in happened:
                self._restore()
                os.kill(os.getpid(), signal.SIGSTOP)
                self._take()
        if self._keyboard is None or self._keyboard not in ready:
            return b""
        return os.read(self._keyboard, 4096) or None  # no bytes: the terminal is closed

    def _take(self) -> None:
        if self._keyboard is not None:
            self._before = termios.tcgetattr(self._keyboard)
            tty.setcbreak(self._keyboard)
        self._console.set_alt_screen(enable=True)
        self._console.show_cursor(show=False)

    def _restore(self) -> None:
        with suppress(OSError):  # the terminal may be closed
            self._console.show_cursor(show=True)
            self._console.set_alt_screen(enable=False)
        if self._keyboard is not None and self._before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._before)


def _ignore(_: int, __: FrameType | None) -> None:
    """Do nothing: `Screen.wait` reads the number of the signal."""


def show(
    client: LiveClient, url: str, interval: float, rule: str | None, *, is_ascii: bool
) -> None:
    """Show the figures until the user quits.

    Raises `LiveError` if the first request fails and a repetition is of no use.
    """
    view = View(selected=rule, only=rule)
    with Screen(sys.stdin, sys.stdout) as screen:
        poller = Poller(client, url, interval, screen.wake)
        shown = poller.snapshot
        poller.start()
        try:
            while not view.is_over and poller.final is None:
                shown = shown if view.is_paused else poller.snapshot
                screen.draw(Picture(shown, view, screen.fit(), is_ascii=is_ascii))
                pressed = screen.wait()
                if pressed is None:
                    break
                for key in keys_in(pressed):
                    view = view.after(key, shown.live)
        finally:
            poller.stop()
    if poller.final is not None:
        raise poller.final
