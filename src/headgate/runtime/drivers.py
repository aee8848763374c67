"""The two drivers of generators of effects: one blocks, one awaits.

An interrupt (Ctrl-C) reaches the main thread anywhere, and would lose the reply of an operation in
flight. So from the first operation that waits on, `drive` holds the interrupt back in the main
thread, until the reply is there: at most for the store's timeout. Then it throws it in with the
reply. Waits and pauses end at once. That needs Python's own handler of SIGINT to be in place; under
another one, a KeyboardInterrupt is thrown in without a reply. Stores that do not wait are not
protected: holding an interrupt back takes longer than they do.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from headgate.errors import HeadgateError
from headgate.runtime.effects import Effect, Interrupted, begin_undoing, interruption

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.runtime.effects import Effects, Pending

R = TypeVar("R")

try:  # the functions behind those of `signal`, which convert to enumerations: 1 us, not 10
    _signal: Any = import_module("_signal")
except ImportError:
    _signal = signal


def drive(effects: Effects[R]) -> R:
    """Perform *effects* in this thread and return the generator's result."""
    try:
        effect = next(effects)
        while True:
            if effect.may_be_held and threading.get_ident() == threading.main_thread().ident:
                return _drive_held(effects, effect, None)
            error: BaseException | None = None
            try:
                reply = effect.perform()
            except KeyboardInterrupt as interrupt:
                return _drive_held(effects, effect, interrupt)
            except BaseException as caught:  # noqa: BLE001 (the generator's to handle)
                error = caught
            effect = effects.send(reply) if error is None else effects.throw(error)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return] # an R


def _drive_held(effects: Effects[R], effect: Effect, interrupt: BaseException | None) -> R:
    """Go on from *effect* in the main thread, at which *interrupt* came if there is one."""
    with HeldInterrupt() as held:
        try:
            reply, error = held.perform(effect) if interrupt is None else held.begin(effect)
            while True:
                effect = effects.send(reply) if error is None else effects.throw(error)
                reply, error = held.perform(effect)
        except StopIteration as end:
            if held.is_thrown:
                raise KeyboardInterrupt from None
            return end.value  # type: ignore[no-any-return] # an R
        except BaseException as caught:
            if held.is_thrown:
                raise KeyboardInterrupt from _cause(caught)
            raise


class HeldInterrupt:
    """A context of the main thread in which SIGINT waits for the operation in flight."""

    def __init__(self) -> None:
        self.is_thrown = False
        """True if the generator has received the interrupt."""
        self._has_come = False
        self._may_raise = False
        self._handler: Any = None
        self._end_undoing: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        current = _signal.getsignal(signal.SIGINT)
        outer = getattr(current, "__self__", None)  # around a call of the app, which may raise
        may_raise = isinstance(outer, HeldInterrupt) and outer._may_raise  # noqa: SLF001
        if current is signal.default_int_handler or may_raise:
            try:
                self._handler = _signal.signal(signal.SIGINT, self._handle)
            except ValueError:  # not the main interpreter, which alone receives signals
                self._handler = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            _signal.signal(signal.SIGINT, self._handler)
        if self._end_undoing is not None:
            self._end_undoing()
        if self._has_come and not self.is_thrown:
            raise KeyboardInterrupt

    def perform(self, effect: Effect) -> tuple[Any, BaseException | None]:
        """Perform *effect*; return its reply and its error, of which one is None."""
        reply: Any = None
        error: BaseException | None = None
        self._may_raise = not effect.is_finished
        try:
            reply = effect.perform()
        except KeyboardInterrupt:
            return self.begin(effect)
        except BaseException as caught:  # noqa: BLE001 (the generator's to handle)
            error = caught
        self._may_raise = False
        if not self._has_come or self.is_thrown:
            return reply, error
        if error is None or isinstance(error, HeadgateError):
            error = Interrupted(reply, error, is_known=effect.is_finished)
        return self.begin(effect, error)

    def begin(
        self, effect: Effect, error: BaseException | None = None
    ) -> tuple[None, BaseException]:
        """Throw the interrupt in at *effect*, by *error*."""
        self._may_raise = False
        self.is_thrown = True
        self._end_undoing = self._end_undoing or begin_undoing(effect)
        return None, error or Interrupted()

    def _handle(self, *_: object) -> None:
        if self._may_raise:
            raise KeyboardInterrupt
        self._has_come = True


async def adrive(effects: Effects[R], effect: Effect | None = None) -> R:
    """Perform *effects* in the running event loop and return the generator's result.

    *effect* is the one to go on from, if the generator has begun.
    """
    error: BaseException | None = None
    running: Pending | None = None
    try:
        if effect is None:
            effect = next(effects)
        while True:
            error = None
            running = effect.begin()
            try:
                reply = await (effect.aperform() if running is None else running)
            except asyncio.CancelledError as caught:
                await _aundo(effects, interruption(effect, running), caught)
            except GeneratorExit:  # the event loop is gone: nothing can be awaited any more
                effects.close()
                raise
            except BaseException as caught:  # noqa: BLE001 (the generator's to handle)
                error = caught
            effect = effects.send(reply) if error is None else effects.throw(error)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return] # an R
    finally:  # the traceback of an error has this frame: only a collection would free both
        error = running = effect = None


async def _aundo(effects: Effects[Any], interrupted: Interrupted, cancelled: Any) -> NoReturn:
    """Throw *interrupted* in, perform what the generator does then, and raise *cancelled*."""
    reply: Any = None
    error: BaseException | None = interrupted
    try:
        while True:
            effect = effects.send(reply) if error is None else effects.throw(error)
            reply = error = None
            running = effect.begin()
            try:
                reply = await (effect.aperform() if running is None else running)
            except asyncio.CancelledError:  # which changes nothing, if the reply is known
                late = interruption(effect, running)
                late.end_undoing()
                reply, error = late.reply, late.error if late.is_known else late
            except GeneratorExit:  # the event loop is gone
                effects.close()
                raise
            except BaseException as caught:  # noqa: BLE001 (the generator's to handle)
                error = caught
    except GeneratorExit:
        raise
    except BaseException as caught:  # noqa: BLE001 (the cause of what is raised)
        raise cancelled from _cause(caught)
    finally:
        interrupted.end_undoing()


def _cause(caught: BaseException) -> BaseException | None:
    """The error that ended an interrupted generator, if it is one."""
    return None if isinstance(caught, StopIteration | Interrupted) else caught


_tasks: dict[asyncio.AbstractEventLoop, set[asyncio.Task[None]]] = {}
"""Keeps tasks in the background from being collected, until their event loop is closed."""


def _tasks_of(loop: asyncio.AbstractEventLoop) -> set[asyncio.Task[None]]:
    """The tasks of *loop*. With a new loop, those of closed ones are forgotten."""
    found = _tasks.get(loop)
    if found is None:
        for old in [one for one in list(_tasks) if one.is_closed()]:
            _tasks.pop(old, None)  # another thread may have been faster
        found = _tasks.setdefault(loop, set())
    return found


def spawn(effects: Effects[None], *, name: str, in_loop: bool) -> None:
    """Perform *effects* beside the caller: in a task of the running event loop, or in a thread.

    Raises `RuntimeError` if no thread can be started; the generator has not begun then. For an
    event loop the generator begins here: it has a `finally`, which runs however its task ends.
    """
    if not in_loop:
        threading.Thread(target=drive, args=(effects,), name=name, daemon=True).start()
        return
    first = next(effects, None)
    if first is None:
        return

    loop = asyncio.get_running_loop()
    tasks = _tasks_of(loop)

    def end(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        effects.close()

    task = loop.create_task(adrive(effects, first), name=name)
    # An event loop that is closed without cancelling its tasks ends this one too: not worth a
    # message on stderr, as nothing is lost but work in the background.
    task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001
    tasks.add(task)
    task.add_done_callback(end)


class Background(Effect):
    """Perform *effects* beside the caller, which does not wait for them.

    With `in_thread=False` a caller that blocks performs them itself: no thread is worth it.
    """

    __slots__ = ("effects", "in_thread", "name")

    is_finished = True

    def __init__(self, effects: Effects[None], name: str, *, in_thread: bool = True) -> None:
        self.effects = effects
        self.name = name
        self.in_thread = in_thread

    def perform(self) -> None:
        if not self.in_thread:
            drive(self.effects)
            return
        spawn(self.effects, name=self.name, in_loop=False)

    async def aperform(self) -> None:
        spawn(self.effects, name=self.name, in_loop=True)
