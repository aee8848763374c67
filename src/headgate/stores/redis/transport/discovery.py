"""Finding out which servers there are: what to ask whom, without I/O, and two ways to do it.

A plan is a generator that yields questions and is sent the answers, or thrown the `StoreError`
that came instead; what it returns is the finding. So the logic is written once for callers that
may block and for event loops.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.errors import StoreError
from headgate.stores.redis import faults
from headgate.stores.redis.transport.connecting import Door, drop, open_async, open_blocking

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Question:
    """A command for a server, which may take *share* of the time that is left, from 0 to 1."""

    door: Door
    command: tuple[str, ...]
    share: float


Plan = Generator[Question, Any, R]


def carry_out(plan: Plan[R], deadline: float) -> R:
    """What *plan* finds out by asking one server after the other until *deadline* (monotonic)."""
    step: Callable[[], Question] = plan.__next__
    while True:
        try:
            question = step()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        try:
            reply = _ask(question, deadline)
        except StoreError as error:
            step = _throwing(plan, error)
        else:
            step = _sending(plan, reply)


async def carry_out_async(plan: Plan[R], deadline: float) -> R:
    """The same in an event loop."""
    step: Callable[[], Question] = plan.__next__
    while True:
        try:
            question = step()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        try:
            reply = await _ask_async(question, deadline)
        except StoreError as error:
            step = _throwing(plan, error)
        else:
            step = _sending(plan, reply)


def _throwing(plan: Plan[R], error: StoreError) -> Callable[[], Question]:
    return lambda: plan.throw(error)


def _sending(plan: Plan[R], reply: object) -> Callable[[], Question]:
    return lambda: plan.send(reply)


def _ask(question: Question, deadline: float) -> object:
    now = time.monotonic()
    until = now + (deadline - now) * question.share
    connection, reply = open_blocking(question.door, until, question.command)
    connection.disconnect()
    return reply


async def _ask_async(question: Question, deadline: float) -> object:
    within = (deadline - time.monotonic()) * question.share
    try:
        async with asyncio.timeout(within):
            connection, reply = await open_async(question.door, question.command)
            await drop(connection)
            return reply
    except TimeoutError:
        raise faults.too_late(str(question.door), within) from None
