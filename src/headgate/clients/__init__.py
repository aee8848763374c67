"""Outgoing calls to APIs with limits: pacing and retries for httpx, httpx2, requests and aiohttp.

Read `caller` first: the flow of one call, which all clients share. `signals` reads the limits that
a response names, `host_state` remembers them; `policy_limiter` limits calls by rules; `httpx`,
`httpx2`, `requests` and `aiohttp` are the clients.
"""

from headgate.clients.caller import NotSentError
from headgate.clients.host_state import HostStates
from headgate.clients.options import AsyncOptions, Options
from headgate.clients.retry_policy import Backoff, RetryPolicy

__all__ = ["AsyncOptions", "Backoff", "HostStates", "NotSentError", "Options", "RetryPolicy"]
