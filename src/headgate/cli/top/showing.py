"""The picture on a terminal, as long as somebody looks."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from headgate.cli.top.picture import picture
from headgate.cli.top.scene import Page
from headgate.cli.top.screen import Screen, run_on
from headgate.cli.top.view import View, keys_in
from headgate.cli.top.watching import Watch

if TYPE_CHECKING:
    from headgate.cli.top.asking import Asker
    from headgate.cli.top.scene import Scene


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
