"""A load test while it runs: how far it is, and Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Final

from headgate.loadtest.report import Report

if TYPE_CHECKING:
    from headgate.loadtest.client import Sender
    from headgate.loadtest.trial import Trial

_TICK_S: Final = 0.25
_ANEW: Final = "\r\033[K"


def driven(trial: Trial, *, is_watched: bool) -> Report:
    """What came of *trial*, or of what was sent of it until Ctrl-C.

    *is_watched*: a line on stderr says how far it is.
    """
    return asyncio.run(_drive(trial, is_watched=is_watched))


async def _drive(trial: Trial, *, is_watched: bool) -> Report:
    """Send all of it, or what is sent until Ctrl-C."""
    bare = trial.baseline_sender()
    if bare is not None and not await _sent(bare, "baseline", is_watched=is_watched):
        raise KeyboardInterrupt
    sender = trial.sender()
    is_whole = await _sent(sender, "", is_watched=is_watched)
    judgement = trial.judge(sender.record)
    baseline = None if bare is None else bare.record
    return Report(trial, sender.record, judgement, baseline, is_cut_short=not is_whole)


async def _sent(sender: Sender, what: str, *, is_watched: bool) -> bool:
    """Whether *sender* came to its end: False if it was stopped with Ctrl-C."""
    sending = asyncio.ensure_future(sender.run())
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, sending.cancel)
    watching = asyncio.ensure_future(_watch(sender, what)) if is_watched else None
    try:
        await sending
    except asyncio.CancelledError:
        return False
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        if watching is not None:
            watching.cancel()
            print(_ANEW, end="", file=sys.stderr, flush=True)
    return True


async def _watch(sender: Sender, what: str) -> None:
    """Say how far it is, again and again."""
    while True:
        print(f"{_ANEW}{sender.progress(what)}", end="", file=sys.stderr, flush=True)
        await asyncio.sleep(_TICK_S)
