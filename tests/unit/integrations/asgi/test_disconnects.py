"""A client that goes away while its request waits."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

import pytest

from headgate.integrations.disconnects import ClientGoneError, DisconnectListener
from headgate.testing.virtual_loop import run_virtually

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Message = MutableMapping[str, Any]
WHOLE: Message = {"type": "http.request", "body": b"all"}
PART: Message = {"type": "http.request", "body": b"a", "more_body": True}
GONE: Message = {"type": "http.disconnect"}


def receiving(*timed: tuple[float, Message]) -> Callable[[], Coroutine[Any, Any, Message]]:
    """What a server says, each message after so many seconds; then nothing any more."""
    left = list(timed)

    async def receive() -> Message:
        if not left:
            await asyncio.sleep(1_000_000)
        seconds, message = left[0]
        await asyncio.sleep(seconds)
        left.pop(0)
        return message

    return receive


async def waiting(seconds: float, said: list[str]) -> str:
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        said.append("cancelled")
        raise
    return "done"


def test_what_comes_meanwhile_is_kept_for_the_app() -> None:
    async def main() -> tuple[str, Message, Message]:
        listening = DisconnectListener(receiving((1, WHOLE), (10, GONE)))
        came = await listening.meanwhile(waiting(5, []))
        return came, await listening.receive(), await listening.receive()

    assert run_virtually(main()) == ("done", WHOLE, GONE)


def test_who_goes_away_gives_its_place_up() -> None:
    said: list[str] = []

    async def main() -> float:
        listening = DisconnectListener(receiving((1, WHOLE), (1, GONE)))
        with pytest.raises(ClientGoneError):
            await listening.meanwhile(waiting(5, said))
        return asyncio.get_running_loop().time()

    assert run_virtually(main()) == 2
    assert said == ["cancelled"]


def test_no_more_than_the_beginning_of_a_body_is_asked_for() -> None:
    async def main() -> list[Message]:
        listening = DisconnectListener(receiving((1, PART), (1, WHOLE)))
        await listening.meanwhile(waiting(5, []))
        return [await listening.receive(), await listening.receive()]

    assert run_virtually(main()) == [PART, WHOLE]


def test_who_is_cancelled_cancels_what_waits() -> None:
    said: list[str] = []

    async def main() -> None:
        listening = DisconnectListener(receiving((1, WHOLE)))
        task = asyncio.ensure_future(listening.meanwhile(waiting(5, said)))
        await asyncio.sleep(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtually(main())
    assert said == ["cancelled"]


def test_an_error_of_what_waits_is_passed_on() -> None:
    async def fail() -> None:
        raise ValueError("no")

    async def main() -> None:
        with pytest.raises(ValueError, match="no"):
            await DisconnectListener(receiving((1, WHOLE))).meanwhile(fail())

    run_virtually(main())
