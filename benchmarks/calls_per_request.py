"""Count the Python calls, and the files they are in, of one request through the ASGI middleware.

    python -m benchmarks.calls_per_request [--store redis://127.0.0.1:6379/0] [--list]

The request is one that came before, under a policy with one rule, on Redis. Without `--store` a
Redis server is started for it. The work of the event loop itself is not counted: only calls of
functions of Headgate are, and a generator or a coroutine that goes on counts once.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import headgate
from benchmarks.asgi import POLICY, new_scope, plain
from headgate.integrations.asgi import RateLimitMiddleware
from headgate.policy.loader import read_policy
from tests.support.servers import RedisServer

if TYPE_CHECKING:
    from types import FrameType

    from headgate.integrations.asgi import Message

MOST_CALLS: Final = 60
MOST_FILES: Final = 20
SOURCE: Final = str(Path(headgate.__file__).parent)


def main() -> int:
    options = _parser().parse_args()
    with ExitStack() as stack:
        url = options.store
        if url is None:
            url = stack.enter_context(RedisServer()).bare_url
        calls = asyncio.run(_calls(url))
    if options.list:
        for (path, name), count in calls.items():
            print(f"{count:4}  {path}: {name}")
    files = {path for path, _ in calls}
    total = sum(calls.values())
    print(f"calls: {total} (at most {MOST_CALLS})")
    print(f"files: {len(files)} (at most {MOST_FILES})")
    return 0 if total <= MOST_CALLS and len(files) <= MOST_FILES else 1


async def _calls(url: str) -> Counter[tuple[str, str]]:
    """The calls of one request, by file and function, after some that warm everything up."""
    app = RateLimitMiddleware(plain, policy=read_policy(POLICY), store=url)
    found: Counter[tuple[str, str]] = Counter()
    frames: set[FrameType] = set()

    def count(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        is_ours = event == "call" and code.co_filename.startswith(SOURCE)
        if is_ours and frame not in frames:
            frames.add(frame)
            found[code.co_filename.removeprefix(SOURCE)[1:], code.co_qualname] += 1

    for _ in range(20):
        await app(new_scope(), _receive, _send)
    sys.setprofile(count)
    try:
        await app(new_scope(), _receive, _send)
    finally:
        sys.setprofile(None)
    await app.limiter.aclose()
    return found


async def _receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send(_message: Message) -> None:
    pass


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", help="the URL of a store")
    parser.add_argument("--list", action="store_true", help="print each function")
    return parser


if __name__ == "__main__":
    sys.exit(main())
