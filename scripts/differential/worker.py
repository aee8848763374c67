"""`worker.py ADAPTER`: run the cases that come in as lines of JSON, answer each with a line.

It imports nothing of the repository but the adapter, which is beside it: it runs in the environment
of release 0.1 too. Every step of a case has one answer: what was decided, or what was raised.
"""

from __future__ import annotations

import asyncio
import json
import sys
from fractions import Fraction
from importlib import import_module
from typing import Any

Json = Any
SALT = b"differential"
here: Any = import_module(sys.argv[1])
"""The adapter."""
last: dict[str, float | None] = {}
"""The times of the last decision."""


def _known_to_both(lines: list[list[str]]) -> list[list[str]]:
    """*lines* without those that 0.1 does not send."""
    return [line for line in lines if line[0].lower() != "idempotency-replayed"]


def main() -> None:
    runs = {"limiter": LimiterRun, "policy": PolicyRun, "asgi": AsgiRun, "wsgi": WsgiRun}
    for line in sys.stdin:
        case = json.loads(line)
        print(json.dumps(answers(runs[case["kind"]], case)), flush=True)


def answers(kind: type[Run], case: Json) -> list[Json]:
    """One answer for making the subject, and one for each step."""
    try:
        run = kind(case)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is an answer
        return [raised(error)]
    try:
        return ["made", *(run.step(*step) for step in case["steps"])]
    finally:
        run.close()


def raised(error: Exception) -> Json:
    """The kind of the error as callers catch it: the first class that is not Headgate's own.

    Names of classes and texts may change.
    """
    kind = next(one for one in type(error).__mro__ if not one.__module__.startswith("headgate"))
    return {"raised": kind.__name__}


def figures(decision: Any) -> Json:
    """All that a caller can read."""
    last.update(retry_after=decision.retry_after, reset_after=decision.reset_after)
    found = {
        "allowed": decision.allowed,
        "key": decision.key,
        "limit": str(decision.limit),
        "remaining": decision.remaining,
        "retry_after": decision.retry_after,
        "reset_after": decision.reset_after,
        "delay": decision.delay,
        "source": decision.source,
    }
    if len(decision.limits) > 1:
        found["limits"] = [figures(part) for part in decision.limits]
    return found


class Run:
    """A subject on a manual clock. A step is the name of a method and its arguments."""

    def __init__(self, case: Json) -> None:
        self.clock = here.ManualClock(case["start"])
        self.options = {
            "store": case["store"],
            "clock": self.clock,
            "namespace": case["namespace"],
        }
        self.kept: dict[str, Any] = {}
        last.clear()

    def step(self, name: str, *arguments: Json) -> Json:
        try:
            return getattr(self, name)(*arguments)
        except Exception as error:  # noqa: BLE001 - as above
            return raised(error)

    def advance(self, nanoseconds: int) -> None:
        self.clock.advance_ns(nanoseconds)

    def align(self, nanoseconds: int) -> None:
        """Move on to the next multiple of *nanoseconds*."""
        self.advance(-self.clock() % nanoseconds)

    def wait(self, what: str, nanoseconds: int) -> None:
        """Move on until the last decision says that something changes, and *nanoseconds* more."""
        self.advance(max(0, round((last.get(what) or 0) * 1e9) + nanoseconds))

    def close(self) -> None:
        pass


class LimiterRun(Run):
    """A `RateLimiter`."""

    def __init__(self, case: Json) -> None:
        super().__init__(case)
        stack = [_limit(limit) for limit in case["limits"]]
        self.limiter = here.RateLimiter(
            stack, on_store_failure="fail_closed", name="api", **self.options
        )

    def hit(self, key: str, cost: Json) -> Json:
        return figures(self.limiter.hit(key, cost))

    def peek(self, key: str, cost: Json) -> Json:
        return figures(self.limiter.peek(key, cost))

    def charge(self, key: str, cost: Json) -> Json:
        return figures(self.limiter.charge(key, cost))

    def refund(self, key: str, cost: Json) -> Json:
        return figures(self.limiter.refund(key, cost))

    def acquire(self, key: str, cost: Json, timeout: float) -> Json:
        return [figures(self.limiter.acquire(key, cost, timeout)), self.clock()]

    def hit_many(self, pairs: Json) -> Json:
        return [figures(one) for one in self.limiter.hit_many([tuple(pair) for pair in pairs])]

    def hit_all(self, hits: Json) -> Json:
        return figures(self.limiter.hit_all([here.Hit(**hit) for hit in hits]))

    def reset(self, key: str) -> None:
        self.limiter.reset(key)

    def reserve(self, name: str, key: str, cost: Json, ttl: float) -> Json:
        self.kept[name] = reservation = self.limiter.reserve(key, cost, ttl)
        return figures(reservation.decision)

    def commit(self, name: str, actual: Json) -> Json:
        return self.kept[name].commit(actual)

    def cancel(self, name: str) -> Json:
        return self.kept[name].cancel()

    def enter(self, name: str, key: str) -> Json:
        self.kept[name] = slot = self.limiter.slot(key)
        slot.__enter__()
        return figures(slot.decision)

    def renew(self, name: str) -> Json:
        return self.kept[name].renew()

    def leave(self, name: str) -> Json:
        return self.kept[name].__exit__(None, None, None)

    def close(self) -> None:
        self.limiter.close()


def _limit(limit: Json) -> Any:
    """A text in the notation, or a type of limit and its numbers; a rate is a fraction."""
    if isinstance(limit, str):
        return limit
    kind, numbers = limit
    read = {name: Fraction(*n) if isinstance(n, list) else n for name, n in numbers.items()}
    return getattr(here.limits, kind)(**read)


class PolicyRun(Run):
    """The engine under a policy."""

    def __init__(self, case: Json) -> None:
        super().__init__(case)
        policy = here.read_policy(json.dumps(case["policy"]))
        self.engine = here.RuleEngine(policy, salt=SALT, **self.options)

    def check(self, name: str, request: Json, cost: Json) -> Json:
        self.kept[name] = verdict = self.engine.check(_request(request), cost=cost)
        return self.told(verdict)

    def peek(self, _name: str, request: Json, cost: Json) -> Json:
        return self.told(self.engine.peek(_request(request), cost=cost))

    def reserve(self, name: str, request: Json, cost: Json, ttl: float) -> Json:
        self.kept[name] = verdict = self.engine.reserve(_request(request), cost=cost, ttl=ttl)
        return self.told(verdict)

    def settle(self, name: str, actual: Json) -> Json:
        return self.engine.settle(self.kept[name], actual)

    def refund(self, name: str) -> None:
        self.engine.refund(self.kept[name])

    def release(self, name: str) -> None:
        self.engine.release(self.kept[name])

    def replace(self, policy: Json) -> None:
        self.engine.replace(here.read_policy(json.dumps(policy)))

    def told(self, verdict: Any) -> Json:
        denied_by = verdict.denied_by
        return {
            "allowed": verdict.allowed,
            "is_replay": verdict.is_replay,
            "denied_by": denied_by and denied_by.rule.id,
            "would_deny": [one.rule.id for one in verdict.would_deny],
            "retry_after": verdict.retry_after,
            "delay": verdict.delay,
            "source": verdict.source,
            "rules": [
                [one.rule.id, one.key, one.cost, one.is_shadow, figures(one.decision)]
                for one in verdict.rules
            ],
            "headers": here.headers_for(here.answer_of(verdict), now_ns=self.clock()),
        }

    def close(self) -> None:
        self.engine.close()


def _request(request: Json) -> Any:
    headers = tuple((name, value) for name, value in request["headers"])
    fields = {name: request[name] for name in ("method", "path", "host", "peer", "attributes")}
    return here.Request(headers=headers, **fields)


class AsgiRun(Run):
    """The ASGI middleware around an app that says what a request has cost."""

    def __init__(self, case: Json) -> None:
        super().__init__(case)
        self.given: dict[str, Any] = {"salt": SALT, **self.options}
        if "policy" in case:
            self.given["policy"] = here.read_policy(json.dumps(case["policy"]))
        else:
            self.given["limits"] = case["limits"]
        self.given["headers"] = case["headers"]
        self.make()

    def make(self) -> None:
        self.app = here.RateLimitMiddleware(self.inner, **self.given)
        self.loop = asyncio.new_event_loop()

    def request(self, request: Json, tokens: int) -> Json:
        return self.loop.run_until_complete(self._request(request, tokens))

    async def inner(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for event in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{event}.complete"})
            return
        headers = [(b"x-tokens", str(scope["extensions"]["tokens"]).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    async def _request(self, request: Json, tokens: int) -> Json:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [("host", request["host"]), *request["headers"]]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request["method"],
            "scheme": "http",
            "path": request["path"],
            "raw_path": request["path"].encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
            "client": (request["peer"], 50_000),
            "server": ("127.0.0.1", 8000),
            "state": {},
            "extensions": {"tokens": tokens},
        }
        await self.app(scope, receive, send)
        start, *rest = sent
        return {
            "status": start["status"],
            "headers": _known_to_both(
                [[name.decode(), value.decode()] for name, value in start["headers"]]
            ),
            "body": b"".join(one.get("body", b"") for one in rest).decode(),
        }

    async def _live(self) -> None:
        """Start and stop, so that the middleware gives back what it holds open."""
        events = iter(("startup", "shutdown"))

        async def receive() -> Any:
            return {"type": f"lifespan.{next(events)}"}

        async def send(_message: Any) -> None:
            pass

        await self.app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)

    def close(self) -> None:
        self.loop.run_until_complete(self._live())
        self.loop.close()


class WsgiRun(AsgiRun):
    """The WSGI middleware."""

    def make(self) -> None:
        self.app = here.WsgiMiddleware(self.plain, **self.given)

    def plain(self, environ: Any, start_response: Any) -> Any:
        start_response("200 OK", [("x-tokens", str(environ["test.tokens"]))])
        return [b"ok"]

    def request(self, request: Json, tokens: int) -> Json:
        got: list[Any] = []

        def start_response(status: str, headers: Any, _exc_info: Any = None) -> Any:
            got[:] = [status, [list(line) for line in headers]]
            return None

        environ = {
            "REQUEST_METHOD": request["method"],
            "SCRIPT_NAME": "",
            "PATH_INFO": request["path"],
            "RAW_URI": request["path"],
            "QUERY_STRING": "",
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "8000",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": request["peer"],
            "HTTP_HOST": request["host"],
            "wsgi.url_scheme": "http",
            "wsgi.input": None,
            "wsgi.errors": sys.stderr,
            "test.tokens": tokens,
        }
        for name, value in request["headers"]:
            environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
        body = self.app(environ, start_response)
        text = b"".join(body).decode()
        if hasattr(body, "close"):
            body.close()
        return {"status": got[0], "headers": _known_to_both(got[1]), "body": text}

    def close(self) -> None:
        here.close_middleware(self.app)


if __name__ == "__main__":
    main()
