"""Calling somebody else's limited API: pace the calls, and obey what the server says.

The way of a call through it, a module each; all but the last three rows are pure:

    outset                      which destination, and may it be repeated (`retrying`)
    destinations                closed until when; the retry `budget`
    journey                     all waits and attempts of one request
    signals, backoff            what an answer says; how long to wait
    courtesy, pacing            the options
    turns, allowance            whose turn it is; how much of a refusal is read
    caller, aio_caller          carry a journey out
    httpx, requests, aiohttp    the clients; each needs its package, none is imported here
"""

from headgate.clients.caller import AsyncOptions, Options
from headgate.clients.host_state import Destinations
from headgate.clients.not_sent import NotSentError
from headgate.clients.retry_policy import Backoff, Courtesy

__all__ = ["AsyncOptions", "Backoff", "Courtesy", "Destinations", "NotSentError", "Options"]
