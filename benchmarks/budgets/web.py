"""What a limit adds to a request through an ASGI, WSGI or Flask app, without a network."""

from __future__ import annotations

import asyncio

from benchmarks import wsgi as wsgi_apps
from benchmarks.asgi import bare_apps, our_apps, peers, response_of, sample_of
from benchmarks.budgets.row import Budget, Effort, Row
from benchmarks.measure import MILLISECOND, in_turns

SENT = {
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "ratelimit-policy",
    "ratelimit",
}
SENT_BY = {"all headers": 5, "X-RateLimit": 3, "nothing": 0}
SLOWAPI = {
    "slowapi decorator, no headers": "slowapi, decorator, nothing",
    "slowapi decorator, headers": "slowapi, decorator, X-RateLimit",
    "slowapi middleware, headers": "slowapi, ASGI middleware, X-RateLimit",
}
FASTAPI = {
    "fastapi-limiter, no headers": "fastapi-limiter, dependency",
    "an empty dependency": "fastapi, an empty dependency",
}
ASGI = {
    "one_limit": ("ASGI middleware, one limit", "middleware", 6, SLOWAPI),
    "policy": ("ASGI middleware, a policy with one rule", "middleware, a policy", 8, SLOWAPI),
    "two_limits": ("ASGI middleware, two limits", "middleware, two limits", 9, SLOWAPI),
    "starlette": ("Starlette decorator", "decorator in Starlette", 8, SLOWAPI),
    "fastapi": ("FastAPI dependency", "dependency in FastAPI", 22, FASTAPI),
}
WSGI = {
    "middleware": ("WSGI middleware", 12),
    "flask_extension": ("Flask extension", 30),
    "flask_decorator": ("Flask decorator", 40),
}


def asgi(effort: Effort) -> list[Row]:
    contestants = our_apps() + (peers() if effort.with_peers else [])
    loop = asyncio.new_event_loop()
    try:
        for one in contestants:
            status, headers = loop.run_until_complete(response_of(one.app))
            assert status == 200, one.name
            assert len(SENT & headers.keys()) == SENT_BY[one.sends], (one.name, headers)
        apps = bare_apps() | {one.name: one.app for one in contestants}
        samples = {name: sample_of(app, loop, 15 * MILLISECOND) for name, app in apps.items()}
        timings = in_turns(samples, effort.rounds(40))
    finally:
        loop.close()
    added = {
        one.name: (timings[one.name].best - timings[one.bare].best) / 1000 for one in contestants
    }
    return [
        Row(
            f"asgi.{name}",
            f"{path}, added",
            added[f"headgate, {app}"],
            "us",
            (Budget(bound),),
            {short: added[peer] for short, peer in beside.items() if peer in added},
        )
        for name, (path, app, bound, beside) in ASGI.items()
    ]


def wsgi(effort: Effort) -> list[Row]:
    rivals = wsgi_apps.peers() if effort.with_peers else []
    contestants = wsgi_apps.our_apps() + rivals
    for one in contestants:
        status, headers = wsgi_apps.response_of(one.app)
        assert status == "200 OK", one.name
        assert len(SENT & headers.keys()) >= SENT_BY["X-RateLimit"], (one.name, headers)
    apps = wsgi_apps.bare_apps() | {one.name: one.app for one in contestants}
    samples = {name: wsgi_apps.sample_of(app, 15 * MILLISECOND) for name, app in apps.items()}
    timings = in_turns(samples, effort.rounds(40))
    added = {
        one.name: (timings[one.name].best - timings[one.bare].best) / 1000 for one in contestants
    }
    return [
        Row(
            f"wsgi.{name}",
            f"{app}, added",
            added[app],
            "us",
            (Budget(bound),),
            {one.name: added[one.name] for one in rivals},
        )
        for name, (app, bound) in WSGI.items()
    ]
