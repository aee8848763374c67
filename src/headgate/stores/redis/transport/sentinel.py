"""The primary that Sentinels name, and only if it says itself that it is one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headgate.errors import StoreError
from headgate.server_urls import Address
from headgate.stores.redis import errors
from headgate.stores.redis.transport.async_connection import Owner, Wire, wire_on
from headgate.stores.redis.transport.blocking_connection import Lane, lane_on
from headgate.stores.redis.transport.connect import (
    Door,
    door_to,
    door_to_sentinel,
    drop,
    open_async,
    open_blocking,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.stores.redis.request import Reply
    from headgate.stores.redis.url import RedisURL


# Finding out which servers there are: what to ask whom, without I/O, and two ways to do it.
#
# A plan is a generator that yields questions and is sent the answers, or thrown the `StoreError`
# that came instead; what it returns is the finding. So the logic is written once for callers that
# may block and for event loops.


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
        raise errors.too_late(str(question.door), within) from None


_PAUSE: Final = 0.02


class Sentinels:
    """Who is asked for the primary: the one that knew it last time comes first."""

    def __init__(self, url: RedisURL) -> None:
        self._url = url
        self._order = url.addresses

    def plan(self) -> Plan[Address]:
        """Ask one Sentinel after the other; a hung one takes its share of the time only."""
        error = StoreError("no Sentinel was asked")
        command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._url.primary_name)
        order = self._order
        for asked, address in enumerate(order):
            door = door_to_sentinel(self._url, address)
            try:
                reply = yield Question(door, command, 1 / (len(order) - asked + 1))
                primary = self._primary(reply, door.address)
            except StoreError as caught:
                error = caught
            else:
                self._order = (address, *(one for one in order if one != address))
                return primary
        raise StoreError(
            f"no Sentinel names a primary; the last said: {error}", reason=error.reason
        )

    def _primary(self, reply: Reply, asked: Address) -> Address:
        if reply is None:
            raise StoreError(
                f"the Sentinel at {asked} knows no primary called {self._url.primary_name!r}",
                reason="unreachable",
            )
        try:
            host, port = reply
            return Address(host.decode(), int(port))
        except (TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"{asked} is no Sentinel: it said {reply!r}") from error


def _is_primary(role: Reply) -> bool:
    """Whether an answer to ROLE is that of a primary; a user who may not ask is not in doubt."""
    return not isinstance(role, list) or role[0] == b"master"


def _impostor(address: Address) -> StoreError:
    return StoreError(
        f"the Sentinels name {address} as primary, but it is a replica: a failover is under way",
        reason="readonly",
    )


class SentinelDialer:
    """Opens blocking connections to the primary, which it asks for every time."""

    def __init__(self, url: RedisURL) -> None:
        self._url = url
        self._sentinels = Sentinels(url)

    def __call__(self, deadline: float) -> Lane:
        """A connection to the primary; raises `StoreError` when there is none until *deadline*."""
        url = self._url
        while True:
            address = carry_out(self._sentinels.plan(), deadline)
            door, plain = door_to(url, address), url.options.plain_link
            connection, role = open_blocking(door, deadline, ("ROLE",), plain=plain)
            if _is_primary(role):
                return lane_on(connection, str(address), url.timeout, plain=plain)
            connection.disconnect()
            if deadline - time.monotonic() < 2 * _PAUSE:
                raise _impostor(address)
            time.sleep(_PAUSE)


class AsyncSentinelDialer:
    """The same in an event loop."""

    def __init__(self, url: RedisURL) -> None:
        self._url = url
        self._sentinels = Sentinels(url)

    async def __call__(self, owner: Owner) -> Wire:
        """A connection to the primary; raises `StoreError` when there is none."""
        url = self._url
        deadline = time.monotonic() + url.timeout
        while True:
            address = await carry_out_async(self._sentinels.plan(), deadline)
            connection, role = await open_async(door_to(url, address), ("ROLE",))
            if _is_primary(role):
                where = str(address)
                return wire_on(connection, owner, where, url.timeout, plain=url.options.plain_link)
            await drop(connection)
            if deadline - time.monotonic() < 2 * _PAUSE:
                raise _impostor(address)
            await asyncio.sleep(_PAUSE)
