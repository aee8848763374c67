"""Error bodies and headers that clients of OpenAI and of Anthropic expect of a rate limiter.

What the SDKs read (Python, `openai` 3.51 and `anthropic` 2.10):

- The class of an error follows from the status alone: 429 is `RateLimitError` in both.
- `openai` shows `error.message` and gives `error.type`, `error.param` and `error.code` to the
  caller; `anthropic` gives `error.type` and `error.message`.
- Both retry a 429 twice unless `x-should-retry` is `false`. They wait for `retry-after-ms`, else
  `retry-after`; without them 0.5 to 8 seconds. `openai` gives up if the wait is longer than two
  minutes; `anthropic` sleeps for as long as the header says, so `retry_headers` stops both early.
- Neither reads the headers with limits, remaining units and resets. Pacing clients do, such as
  `headgate.clients`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from headgate.units import SECOND, bounded, milliseconds_up, seconds_up

if TYPE_CHECKING:
    from collections.abc import Mapping

Protocol = Literal["openai", "anthropic"]
Counted = Literal[
    "requests", "tokens", "input_tokens", "uncached_input_tokens", "output_tokens", "spend"
]
"""What a limit counts: requests, or one of `amounts.KINDS`."""

Lines = list[tuple[str, str]]

LONGEST_RETRY_NS: Final = 60 * SECOND
"""The longest wait that an SDK is left to sleep through inside a call."""

_OPENAI_ERRORS: Final = {
    "requests": ("requests", "rate_limit_exceeded"),
    "spend": ("insufficient_quota", "insufficient_quota"),
}
"""Types and codes; all else is `tokens`. OpenAI denies with `insufficient_quota`, which clients do
not retry, if a budget is spent."""

_OPENAI_NAMES: Final[dict[Counted, str]] = {"requests": "requests", "tokens": "tokens"}
_ANTHROPIC_NAMES: Final[dict[Counted, str]] = {
    "requests": "requests",
    "tokens": "tokens",
    "input_tokens": "input-tokens",
    "uncached_input_tokens": "input-tokens",
    "output_tokens": "output-tokens",
}
RATE_LIMIT_HEADERS: Final = (
    *(
        f"x-ratelimit-{figure}-{name}"
        for name in _OPENAI_NAMES.values()
        for figure in ("limit", "remaining", "reset")
    ),
    *(
        f"anthropic-ratelimit-{name}-{figure}"
        for name in dict.fromkeys(_ANTHROPIC_NAMES.values())
        for figure in ("limit", "remaining", "reset")
    ),
)
"""The names of all headers that `rate_limit_headers` may return."""

_LAST_SECOND: Final = 253_402_300_799  # of the year 9999


def protocol_of(path: str) -> Protocol:
    """Return the protocol of a request to *path*: `/messages` is Anthropic's, all else OpenAI's."""
    is_messages = bare_path(path).endswith(("/messages", "/messages/count_tokens"))
    return "anthropic" if is_messages else "openai"


def bare_path(path: str) -> str:
    """Return *path* without query and trailing slashes."""
    return path.partition("?")[0].rstrip("/")


@dataclass(frozen=True, slots=True)
class Figures:
    """The state of a limit: its quota, what is left of it, and the time until all is back."""

    limit: int
    remaining: int
    reset_ns: int


def denial_body(protocol: Protocol, counted: Counted, message: str) -> bytes:
    """Return the JSON body of a 429 of *protocol*, from a limit of what is *counted*."""
    if protocol == "anthropic":
        error: dict[str, object] = {"type": "rate_limit_error", "message": message}
        return _encoded({"type": "error", "error": error})
    kind, code = _OPENAI_ERRORS.get(counted, ("tokens", "rate_limit_exceeded"))
    return _encoded({"error": {"message": message, "type": kind, "param": None, "code": code}})


def _encoded(data: object) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode("ascii")


def retry_headers(wait_ns: int | None) -> Lines:
    """Return what an SDK needs, beside `Retry-After`, after a denial of *wait_ns*; None: for ever.

    The wait in milliseconds, or the request not to retry if it is too long to sleep inside a call.
    """
    if wait_ns is None or wait_ns > LONGEST_RETRY_NS:
        return [("x-should-retry", "false")]
    return [("retry-after-ms", str(milliseconds_up(wait_ns)))]


def rate_limit_headers(
    protocol: Protocol, figures: Mapping[Counted, Figures], now_ns: int
) -> Lines:
    """Return the headers of *protocol* for the limits in *figures*, at *now_ns* since the epoch.

    Neither provider has headers for spend, and OpenAI none that tell input from output tokens:
    those are left out. Of two limits with one name, the one with less left is shown.
    """
    if protocol == "openai":
        named = _named(figures, _OPENAI_NAMES)
        return [line for name, one in named.items() for line in _openai(name, one)]
    named = _named(figures, _ANTHROPIC_NAMES)
    return [line for name, one in named.items() for line in _anthropic(name, one, now_ns)]


def _named(figures: Mapping[Counted, Figures], names: dict[Counted, str]) -> dict[str, Figures]:
    named: dict[str, Figures] = {}
    for counted, name in names.items():
        one = figures.get(counted)
        if one and (name not in named or one.remaining < named[name].remaining):
            named[name] = one
    return named


def _openai(name: str, one: Figures) -> Lines:
    return [
        (f"x-ratelimit-limit-{name}", str(bounded(one.limit))),
        (f"x-ratelimit-remaining-{name}", str(bounded(one.remaining))),
        (f"x-ratelimit-reset-{name}", duration(one.reset_ns)),
    ]


def _anthropic(name: str, one: Figures, now_ns: int) -> Lines:
    return [
        (f"anthropic-ratelimit-{name}-limit", str(bounded(one.limit))),
        (f"anthropic-ratelimit-{name}-remaining", str(bounded(one.remaining))),
        (f"anthropic-ratelimit-{name}-reset", timestamp(now_ns + one.reset_ns)),
    ]


def duration(nanoseconds: int) -> str:
    """Return a time as OpenAI writes it, rounded up: `120ms`, `7.66s`, `6m0s`, `24h0m0s`."""
    milliseconds = milliseconds_up(nanoseconds)
    if milliseconds < 1_000:
        return f"{milliseconds}ms"
    if milliseconds < 60_000:
        whole, rest = divmod(milliseconds, 1_000)
        return f"{whole}.{rest:03}".rstrip("0").rstrip(".") + "s"
    minutes, seconds = divmod(seconds_up(nanoseconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{seconds}s" if hours else f"{minutes}m{seconds}s"


def timestamp(nanoseconds: int) -> str:
    """Return nanoseconds since the epoch as RFC 3339 in UTC, rounded up to a second."""
    seconds = min(seconds_up(nanoseconds), _LAST_SECOND)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
