"""The event loop on virtual time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headgate.testing import run_virtually


def test_nobody_waits_and_the_time_is_as_if_everybody_had() -> None:
    async def main() -> float:
        await asyncio.gather(*[asyncio.sleep(seconds) for seconds in (3600, 60)])
        return asyncio.get_running_loop().time()

    assert run_virtually(main()) == 3600


def test_what_is_given_to_a_thread_is_done_at_once_in_this_one() -> None:
    def fail() -> None:
        raise LookupError("nothing there")

    async def main() -> threading.Thread:
        with pytest.raises(LookupError, match="nothing there"):
            await asyncio.to_thread(fail)
        return await asyncio.to_thread(threading.current_thread)

    assert run_virtually(main()) is threading.current_thread()


def test_to_wait_for_what_will_never_happen_is_an_error() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="no timer is left"):
        run_virtually(main())
