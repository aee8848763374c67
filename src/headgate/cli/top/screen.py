"""A terminal as a page that is drawn again and again, and given back as it was.

While it is entered, keys come at once and are not echoed, and what is drawn is on a screen of its
own, so that what was there before is there again afterwards. Signals that concern it (a new size,
the end, a stop, Ctrl-C) come as bytes of `wait`, so that nothing happens in the middle of drawing.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import sys
import termios
import threading
import tty
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TextIO

from headgate.cli.top.client import Watch
from headgate.cli.top.live import Page
from headgate.cli.top.picture import picture
from headgate.cli.top.text import inked, plain
from headgate.cli.top.view import View, keys_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType, TracebackType

    from headgate.cli.top.client import Asker
    from headgate.cli.top.live import Scene
    from headgate.cli.top.text import Line


_ENTER: Final = "\033[?1049h\033[?25l\033[?7l\033[2J"
"""Another screen, no cursor, no wrapping."""
_LEAVE: Final = "\033[?7h\033[?25h\033[?1049l"
_BEGIN, _END = "\033[?2026h\033[H", "\033[?2026l"
"""Shown at once, by terminals that can do that."""
_SIGNALS: Final = (
    signal.SIGINT,  # ignored from the start on in what a shell runs in the background
    signal.SIGWINCH,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGTSTP,
)
_USUAL: Final = (80, 24)


class Screen:
    """The terminal that *output* is, with keys from *keyboard* if that is one too. Use it with
    `with`, in the main thread."""

    def __init__(self, keyboard: TextIO | None, output: TextIO, *, has_colour: bool) -> None:
        self._keyboard = keyboard.fileno() if keyboard is not None and keyboard.isatty() else None
        self._output = output
        self._has_colour = has_colour
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
            self._handlers[one] = signal.signal(one, _come_as_bytes)
        # Written by the interpreter when the signal comes, in whichever thread that is. A handler
        # runs later, and not at all while the main thread is about to sleep in `select`.
        self._wakeup_fd = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._give_back()
        signal.set_wakeup_fd(self._wakeup_fd)
        for one, handler in self._handlers.items():
            signal.signal(one, handler)
        with self._waking:  # or somebody would write to whatever is opened next
            self._is_open = False
            os.close(self._woken)
            os.close(self._waker)

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        try:
            answer = fcntl.ioctl(self._output.fileno(), termios.TIOCGWINSZ, b"\0" * 8)
        except OSError:
            return _USUAL
        rows, columns, _, _ = struct.unpack("HHHH", answer)
        return columns or _USUAL[0], rows or _USUAL[1]

    def draw(self, lines: Sequence[Line]) -> None:
        """Show *lines*, one for each row."""
        shown = map(inked if self._has_colour else plain, lines)
        # Erased first: after a line that fills its row, the last character would be erased.
        text = "\r\n".join(f"\033[K{one}" for one in shown)
        self._write(f"{_BEGIN}{text}{_END}")

    def wake(self) -> None:
        """Let `wait` return. For any thread."""
        with self._waking, suppress(BlockingIOError):  # full: it will wake
            if self._is_open:
                os.write(self._waker, b"\0")

    def wait(self) -> bytes | None:
        """Wait until something happens, and say which keys were pressed; None: it is to end.

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
                self._pause()
        if self._keyboard is None or self._keyboard not in ready:
            return b""
        pressed = os.read(self._keyboard, 4096)
        return pressed or None  # nothing: the terminal is gone

    def _pause(self) -> None:
        """Let the shell have its terminal, until it says to go on."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()

    def _take(self) -> None:
        if self._keyboard is not None:
            self._before = termios.tcgetattr(self._keyboard)
            tty.setcbreak(self._keyboard)
        self._write(_ENTER)

    def _give_back(self) -> None:
        with suppress(OSError):  # whoever closed the terminal needs nothing back
            self._write(_LEAVE)
        if self._keyboard is not None and self._before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._before)

    def _write(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()


def _come_as_bytes(_: int, __: FrameType | None) -> None:
    """Do nothing: the interpreter has written the signal's number where `wait` reads it."""


def run_on(screen: Screen, draw: Callable[[], None], press: Callable[[bytes], bool]) -> None:
    """Draw, wait, press, until *press* says that it is over, or a signal does."""
    while True:
        draw()
        pressed = screen.wait()
        if pressed is None or press(pressed):
            return


# The picture on a terminal, as long as somebody looks.


class Show:
    """What is on *screen*: what *watch* has heard, as it is looked at."""

    def __init__(self, screen: Screen, watch: Watch, view: View, *, is_ascii: bool) -> None:
        self._screen = screen
        self._watch = watch
        self._is_ascii = is_ascii
        self._view = view
        self._scene: Scene = watch.scene

    def draw(self) -> None:
        if not self._view.is_paused:
            self._scene = self._watch.scene
        width, height = self._screen.size()
        page = Page(width, height, is_ascii=self._is_ascii)
        self._screen.draw(picture(self._scene, self._view, page))

    def press(self, pressed: bytes) -> bool:
        """What keys do; whether it is over."""
        for key in keys_in(pressed):
            self._view = self._view.after(key, self._scene.live)
        return self._view.is_over or self._watch.final is not None


def show(asker: Asker, url: str, interval: float, rule: str | None) -> None:
    """Show the service that *asker* asks until somebody quits.

    Raises `LookError` if the first answer is that it will not say.
    """
    from headgate.cli.top import has_unicode

    has_colour = not os.environ.get("NO_COLOR")
    with Screen(sys.stdin, sys.stdout, has_colour=has_colour) as screen:
        watch = Watch(asker, url, interval, screen.wake)
        show_ = Show(screen, watch, View(picked=rule, alone=rule), is_ascii=not has_unicode())
        watch.start()
        try:
            run_on(screen, show_.draw, show_.press)
        finally:
            watch.stop()
    if watch.final is not None:
        raise watch.final
