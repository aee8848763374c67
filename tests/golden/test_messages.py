"""What is raised for wrong input, and what is logged about a store: types apart from wording."""

import asyncio
import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.golden.python_api import PUBLIC, AsyncRateLimiter, RateLimiter
from tests.golden.recorder import check_text, check_wire

LIMITS = (
    "",
    " ",
    "100",
    "100/",
    "/minute",
    "0/minute burst 5",
    "unlimited burst 5",
    "-1/minute",
    "1.5/minute",
    "100/minut",
    "100/month",
    "100/fortnight",
    "100 minute",
    "100 per",
    "100 a minute",
    "100/0s",
    "100/1000000d",
    "9999999999999999999/s",
    "100/minute burst",
    "100/minute burst 0",
    "100/minute burst ten",
    "100/minute burst 5 burst 6",
    "100/minute brust 5",
    "100/minute fixed_windw",
    "100/minute fixed_window burst 5",
    "100/minute fixed_window gcra",
    "100/minute sliding_window_log subwindows 5",
    "100/minute sliding_window_counter subwindows 0",
    "100/minute sliding_window_counter subwindows 100000",
    "10/s peak",
    "10/s peak 5/s for 30s",
    "10/s peak 100/s",
    "10/s peak 100/s for",
    "10/s peak 100/s for 1ms",
    "10/s peak 100/s for 30s gcra",
    "100/minute;",
    ";100/minute",
    "100/minute;;5/s",
    "100/minute, 5/s",
    "100/minute and 5/s",
    "100/minute\x00",
    "\N{FULLWIDTH DIGIT ONE}/s",
    "a lot",
    "5/s " + "x" * 2000,
)
"""Texts that are no limits."""

EXPRESSIONS = (
    "parse_limit('5/s; 6/m')",
    "parse_limit(5)",
    "parse_limits(None)",
    "TokenBucket(0, 1)",
    "TokenBucket(1.5, 1)",
    "TokenBucket(True, 1)",
    "TokenBucket(1, 0)",
    "TokenBucket(1, -1)",
    "TokenBucket(1, float('nan'))",
    "TokenBucket(1, float('inf'))",
    "TokenBucket(10**18, 1)",
    "TokenBucket(1, 10**12)",
    "TokenBucket(10, 1e-12)",
    "GCRA(rate=1, burst=0)",
    "GCRA(rate='1', burst=1)",
    "LeakyBucket(0, 1)",
    "FixedWindow(0, 60)",
    "FixedWindow(1, 0)",
    "FixedWindow(1, 10**12)",
    "FixedWindow(1, '60')",
    "SlidingWindowLog(0, 60)",
    "SlidingWindowLog(10**9, 60)",
    "SlidingWindowCounter(1, 60, subwindows=0)",
    "SlidingWindowCounter(1, 60, subwindows=10**6)",
    "Concurrency(0, 60)",
    "Concurrency(1, 0)",
    "Concurrency(2, 60, shares=5)",
    "Concurrency(2, 60, shares=(('a', 0),))",
    "Concurrency(2, 60, shares=(('a', 1), ('a', 1)))",
    "Concurrency(2, 60, shares=(('a', 3),))",
    "LeakyQueue(rate=0, queue=1)",
    "LeakyQueue(rate=1, queue=-1)",
    "LeakyQueue(rate=1, queue=1, max_wait=-1)",
    "burst_credits(10, 5, 30)",
    "burst_credits(10, 100, 30, burst=0)",
    "Accuracy(max_overshoot=2)",
    "Accuracy(batch=0)",
    "Accuracy(sync_ns=1)",
    "Accuracy(denials_ns=-1)",
    "Accuracy(split=4)",
    "Accuracy(split=1000, batch=5)",
    "OnFailure('closed')",
    "OnFailure('fail_open', share=2)",
    "OnFailure('fail_closed', share=0.5)",
    "RateLimiter([])",
    "RateLimiter(5)",
    "RateLimiter(['5/s', 6])",
    "RateLimiter('5/s', on_store_failure='open')",
    "RateLimiter('5/s', store=5)",
    "RateLimiter('5/s', store=MemoryStore(), clock=ManualClock())",
    "RateLimiter('5/s', clock=5).hit('a')",
    "RateLimiter('5/s').hit('')",
    "RateLimiter('5/s').hit(5)",
    "RateLimiter('5/s').hit(None)",
    "RateLimiter('5/s').hit('a', -1)",
    "RateLimiter('5/s').hit('a', 1.5)",
    "RateLimiter('5/s').hit('a', True)",
    "RateLimiter('5/s').hit('a', '1')",
    "RateLimiter('5/s').hit('a', float('nan'))",
    "RateLimiter('5/s').hit('a', 10**19)",
    "RateLimiter('5/s').hit('a', -10**19)",
    "RateLimiter('5/s').peek('', 1)",
    "RateLimiter('5/s').charge('a', -1)",
    "RateLimiter('5/s').refund('a', -1)",
    "RateLimiter('5/s').reserve('a', -1)",
    "RateLimiter('5/s').reserve('a', 1, ttl=0)",
    "RateLimiter('5/s').reserve('a', 1).commit(-1)",
    "RateLimiter('5/s').acquire('a', timeout=-1)",
    "RateLimiter('5/s').acquire('a', timeout='1')",
    "RateLimiter('5/s').hit_many('a')",
    "RateLimiter('5/s').hit_many([('a', 1, 2)])",
    "RateLimiter('5/s').hit_many([5])",
    "RateLimiter('5/s').hit_all([])",
    "RateLimiter('5/s').hit_all(['a'])",
    "RateLimiter('5/s').hit_all([Hit('a', '1/s', 1, 'n'), Hit('a', '2/s', 1, 'n')])",
    "Hit('a', 5)",
    "Hit('a', '1/s', name='')",
    "Hit('a', Concurrency(1, 60))",
    "RateLimiter('5/s').slot('a')",
    "RateLimiter(Concurrency(1, 60)).hit('a')",
    "RateLimiter(Concurrency(1, 60)).hit_many(['a'])",
    "RateLimiter(Concurrency(1, 60)).charge('a', 1)",
    "RateLimiter(Concurrency(1, 60)).slot('a', 'part')",
    "RateLimiter(Concurrency(1, 60)).slot('a').release()",
    "RateLimiter(LeakyQueue(1, 1)).charge('a', 1)",
    "RateLimiter(LeakyQueue(1, 1)).refund('a', 1)",
    "RateLimiter('5/s').limit(5)",
    "RateLimiter('5/s').limit('a', timeout=1)(print)",
    "RateLimiter('5/s').limit('a')(asyncio.sleep)",
    "AsyncRateLimiter('5/s').limit('a')(print)",
    "AsyncRateLimiter('5/s', store=5)",
    "AsyncRateLimiter('5/s').hit('a', -1)",
    "RateLimiter('1/h').limit('a', cost=2)(print)()",
    "MemoryStore(max_keys=0)",
    "RequestLimiter(limits='5/s', cost=-1)",
    "RequestLimiter(cost=2)",
    "RequestLimiter(policy=5)",
    "RequestLimiter(policy='/nowhere/policy.yaml')",
    "RequestLimiter(policy=read_policy('version: 1'), trusted_proxies=['10.0.0.0/8'])",
    "RequestLimiter(limits='5/s', key='user')",
    "RequestLimiter(limits='5/s', name='a b')",
    "RequestLimiter(limits='5/s', mode='off!')",
    "RequestLimiter(limits='5/s', headers='some')",
    "RequestLimiter(limits='5/s', on_store_failure='open')",
    "RequestLimiter(limits='5/s', exempt='/health')",
    "RequestLimiter(limits='5/s', exempt=['health'])",
    "RequestLimiter(limits='5/s', trusted_proxies=['nonsense'])",
    "RequestLimiter(limits='5/s', debug_secret='text')",
    "RequestLimiter(limits='5/s', shedder=5)",
    "RequestLimiter(limits='5/s', ttl=0)",
    "AsgiMiddleware(None, limiter=5)",
    "AsgiMiddleware(None, limiter=RequestLimiter(), limits='5/s')",
    "WsgiMiddleware(None, limits='5/s', key=asyncio.sleep)",
    "RouteLimit(limits='5/s', charge_when=asyncio.sleep)",
    "RouteLimit(limits='5/s', cost='1')",
    "FastAPIDependency('5/s', name='')",
    "starlette_limit('5/s')(5)",
    "fastapi_limit('5/s')(int)",
    "django_limit('5/s')(5)",
    "ResponseOptions(jitter=2)",
    "ResponseOptions(jitter_most=-1)",
    "ResponseOptions(outage_status=200)",
    "ResponseOptions(bucket_secret=b'x' * 65)",
    "debug_token(b'secret', now_ns=0, ttl_s=0)",
    "read_policy('version: 2')",
    "by_header('a b')",
)
"""Calls that are wrong, in Python."""

URLS = (
    "",
    "memory",
    "memory:/",
    "memory://host",
    "memory://?max_keys=0",
    "memory://?max_keys=many",
    "memory://?max_keys=1&max_keys=2",
    "memory://?max=5",
    "reddis://localhost",
    "http://localhost",
    "redis://",
    "redis://localhost:port",
    "redis://localhost:99999",
    "redis://localhost/one",
    "redis://localhost/0?db=1",
    "redis://localhost?timeout=0",
    "redis://localhost?timeout=soon",
    "redis://localhost?timeout=",
    "redis://localhost?timeout=1&timeout=2",
    "redis://localhost?connections=0",
    "redis://localhost?tiemout=1",
    "redis://localhost?ssl_ca_certs=a.pem",
    "redis://user:pass%zzword@localhost",
    "redis://a,b",
    "rediss://localhost?ssl_cert_reqs=maybe",
    "rediss://localhost?ssl_keyfile=a.pem",
    "rediss://localhost?ssl_cert_reqs=none&ssl_ca_certs=a.pem",
    "unix://run/redis.sock",
    "unix://",
    "redis+sentinel://localhost",
    "redis+sentinel://localhost/",
    "redis+sentinel://localhost/primary?sentinel_username=a",
    "redis+cluster://localhost/1",
    "valkey://localhost:port",
    "shm://",
    "shm://a/b",
    "shm://name?size=tiny",
    "shm://name?unknown=1",
)


class Accepted(Exception):  # noqa: N818 (it is none)
    """Nothing was raised."""


def raised(function: Callable[[], Any]) -> Exception:
    """The error that *function* ends with, or `Accepted`."""
    try:
        found = function()
        if inspect.iscoroutine(found):
            asyncio.run(found)
    except Exception as error:  # noqa: BLE001 (whatever it is, it is recorded)
        return error
    return Accepted()


def plain(text: str) -> str:
    """*text* without addresses of objects."""
    return re.sub(r" at 0x[0-9a-f]+", " at <address>", text)


def record(name: str, errors: dict[str, Exception]) -> None:
    """Compare types and wording of *errors*."""
    check_wire(f"errors_{name}", {case: type(error).__name__ for case, error in errors.items()})
    text = [f"=== {case}\n{plain(str(error))}\n" for case, error in errors.items()]
    check_text(f"errors_{name}", "".join(text))


def test_texts_that_are_no_limits_are_told_with_their_place() -> None:
    parse = PUBLIC["parse_limits"]
    errors = {ascii(text)[:60]: raised(partial(parse, text)) for text in LIMITS}
    record("limits", errors)
    places = {case: getattr(error, "position", None) for case, error in errors.items()}
    check_wire("errors_limits_places", places)


def test_wrong_calls_are_told() -> None:
    names = {**PUBLIC, "asyncio": asyncio}
    errors = {case: raised(partial(eval, case, dict(names))) for case in EXPRESSIONS}
    record("calls", errors)


def test_wrong_store_urls_are_told() -> None:
    errors = {url: raised(partial(RateLimiter, "5/s", store=url)) for url in URLS}
    record("store_urls", errors)
    twins = {url: raised(partial(AsyncRateLimiter, "5/s", store=url)) for url in URLS}
    assert {url: str(error) for url, error in twins.items()} == {
        url: str(error) for url, error in errors.items()
    }
