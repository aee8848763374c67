"""Whether the upstreams can be reached: told once, at the start. They may come later."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.gateway.upstreams import Upstream

_PATIENCE: Final = 2.0


async def unreachable(upstreams: Iterable[Upstream]) -> list[str]:
    """A sentence for each of *upstreams* that takes no connection now."""
    servers = {one.url: one for one in upstreams}
    found = await asyncio.gather(*map(_trouble, servers.values()))
    return [told for told in found if told is not None]


async def _trouble(upstream: Upstream) -> str | None:
    try:
        async with asyncio.timeout(_PATIENCE):
            if upstream.path:
                _, writer = await asyncio.open_unix_connection(upstream.path)
            else:
                _, writer = await asyncio.open_connection(upstream.host, upstream.port)
    except TimeoutError:
        reason = f"no answer within {_PATIENCE:g} s"
    except OSError as error:
        reason = _reason(error)
    else:
        writer.close()
        return None
    told = f"the upstream {upstream.url} cannot be reached: {reason}"
    return f"{told}; until it can, requests to it get 503"


def _reason(error: OSError) -> str:
    """In few words, also when several addresses were tried."""
    if isinstance(error, ConnectionRefusedError) or "refused" in str(error).lower():
        return "connection refused"
    return error.strerror or str(error)
