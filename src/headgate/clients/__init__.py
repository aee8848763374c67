"""Pacing and retries for calls to an API with limits.

signals                     read what a response says about limits
host_state                  until when a host is closed; the retry budget
retry_policy                options and backoff
attempt                     all waits and attempts of one request, without I/O
caller                      run attempts: blocking and async
not_sent                    the error for a request that was not sent
httpx, requests, aiohttp    the clients, each needs its package
"""

from headgate.clients.caller import AsyncOptions, Options
from headgate.clients.host_state import Destinations
from headgate.clients.not_sent import NotSentError
from headgate.clients.retry_policy import Backoff, Courtesy

__all__ = ["AsyncOptions", "Backoff", "Courtesy", "Destinations", "NotSentError", "Options"]
