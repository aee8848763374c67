"""The debug header where limits are dependencies: with the middleware, and without."""

import pytest
from fastapi import Depends, FastAPI

from headgate.integrations.fastapi import RateLimit, RateLimitMiddleware
from headgate.responses.debug import debug_token
from headgate.units import SECOND
from tests.support.asgi_client import Client, still_limiter

OURS = b"a secret"


@pytest.mark.parametrize("is_watched", [True, False])
def test_a_dependency_is_told(*, is_watched: bool) -> None:
    limiter = still_limiter(debug_secret=OURS)
    app, sub = FastAPI(), FastAPI()
    if is_watched:
        app.add_middleware(RateLimitMiddleware, limiter=limiter)
    limited = RateLimit("2/minute", limiter=None if is_watched else limiter)

    @sub.get("/search", dependencies=[Depends(limited)])
    async def search() -> str:
        return "found"

    app.mount("/sub", sub)
    app.get("/search", dependencies=[Depends(limited)])(search)
    token, _ = debug_token(OURS, now_ns=1_000 * SECOND, ttl_s=60)
    client = Client(app)
    for path in ("/search", "/sub/search"):
        good = {"headgate-debug": token}
        first, _, refused = (client.get(path, headers=good) for _ in range(3))
        assert first.headers["headgate-decision"].startswith('"search";allowed=?1;')
        assert refused.status_code == 429
        assert '"search";allowed=?0;' in refused.headers["headgate-decision"]
        for one in (first, refused):
            assert one.headers.get_list("cache-control") == ["no-store"]
            assert len(one.headers.get_list("headgate-decision")) == 1
        without = client.get(path, headers={"headgate-debug": token[:-1]})
        assert "headgate-decision" not in without.headers
