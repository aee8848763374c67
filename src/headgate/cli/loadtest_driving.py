"""A load test while it runs: how far it is, and Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.cli.progress import StatusLine
from headgate.loadtest.report import Report

if TYPE_CHECKING:
    from headgate.loadtest.client import Sender
    from headgate.loadtest.record import Record
    from headgate.loadtest.trial import Trial

_TICK_S: Final = 0.25


class _Seen(NamedTuple):
    record: Record
    baseline: Record | None
    is_whole: bool


def driven(trial: Trial, *, is_watched: bool) -> Report:
    """What came of *trial*, or of what was sent of it until Ctrl-C.

    *is_watched*: a line on stderr says how far it is. Ctrl-C during the baseline, or while the
    verdict is found, is a `KeyboardInterrupt`.
    """
    line = StatusLine() if is_watched else None
    try:
        seen = asyncio.run(_drive(trial, line))
        if line is not None:
            line.show(f"{len(seen.record):,} answers: does it hold?")
        judgement = trial.judge(seen.record)
    finally:
        if line is not None:
            line.clear()
    return Report(trial, seen.record, judgement, seen.baseline, is_cut_short=not seen.is_whole)


async def _drive(trial: Trial, line: StatusLine | None) -> _Seen:
    """Send all of it, or what is sent until Ctrl-C."""
    bare = trial.baseline_sender()
    if bare is not None and not await _sent(bare, "baseline", line):
        raise KeyboardInterrupt
    sender = trial.sender()
    is_whole = await _sent(sender, "", line)
    return _Seen(sender.record, None if bare is None else bare.record, is_whole)


async def _sent(sender: Sender, what: str, line: StatusLine | None) -> bool:
    """Whether *sender* came to its end: False if it was stopped with Ctrl-C."""
    sending = asyncio.ensure_future(sender.run())
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, sending.cancel)
    watching = None if line is None else asyncio.ensure_future(_watch(sender, what, line))
    try:
        await sending
    except asyncio.CancelledError:
        return False
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        if watching is not None:
            watching.cancel()
    return True


async def _watch(sender: Sender, what: str, line: StatusLine) -> None:
    """Say how far it is, again and again."""
    while True:
        line.show(sender.progress(what))
        await asyncio.sleep(_TICK_S)
