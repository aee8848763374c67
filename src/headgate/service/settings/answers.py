"""What can be set of what callers, gateways and operators are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headgate.settings import readers
from headgate.settings.declaring import setting

_RLS: Final = "Envoy RLS and RLQS"
_RESPONSES: Final = "Responses"
_LOGS: Final = "Logs"

_SECONDS: Final = "seconds, or 30s, 500ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSettings:
    """That part of the `Settings`."""

    rls_charge: str = setting(
        readers.choice("all_or_nothing", "always"),
        _RLS,
        "all_or_nothing or always",
        "what a refusal charges under envoy_config: nothing, or as envoyproxy/ratelimit does",
        default="all_or_nothing",
    )
    rls_reports: str = setting(
        readers.choice("auto", "always", "never"),
        _RLS,
        "auto, always or never",
        "which hits report what has happened already, and count in full",
        default="auto",
    )
    rls_on_store_failure: str = setting(
        readers.choice("error", "fail_open", "fail_closed"),
        _RLS,
        "error, fail_open or fail_closed",
        "what limits without a rule say when the store is gone",
        default="error",
    )
    rls_headers: bool = setting(
        readers.boolean, _RLS, "BOOL", "send rate limit headers back through Envoy", default=True
    )
    rls_metadata: bool = setting(
        readers.boolean, _RLS, "BOOL", "send dynamic metadata back to Envoy", default=False
    )
    rlqs_ttl: int = setting(
        readers.whole(2, 3_600),
        _RLS,
        "SECONDS",
        "how long a gateway's share of a limit lasts without being renewed",
        default=10,
    )
    rlqs_silence: float = setting(
        readers.seconds(5.001),
        _RLS,
        _SECONDS,
        "after which a gateway that reports nothing loses its share",
        default=16.0,
    )
    rlqs_idle: float = setting(
        readers.seconds(5.001),
        _RLS,
        _SECONDS,
        "after which a bucket that nobody uses is abandoned",
        default=60.0,
    )

    responses_x_ratelimit: bool = setting(
        readers.boolean, _RESPONSES, "BOOL", "send X-RateLimit-*", default=True
    )
    responses_ratelimit: bool = setting(
        readers.boolean, _RESPONSES, "BOOL", "send RateLimit and RateLimit-Policy", default=True
    )
    responses_draft03: bool = setting(
        readers.boolean,
        _RESPONSES,
        "BOOL",
        "send RateLimit-Limit, -Remaining, -Reset",
        default=False,
    )
    responses_problem: bool = setting(
        readers.boolean,
        _RESPONSES,
        "BOOL",
        "problem+json for all, not only who asks",
        default=False,
    )
    responses_jitter: float = setting(
        readers.share,
        _RESPONSES,
        "SHARE from 0 to 1",
        "the largest addition to a wait, as a share of it",
        default=0.0,
    )
    responses_jitter_most: float = setting(
        readers.seconds(0.0), _RESPONSES, _SECONDS, "no addition is longer than this", default=60.0
    )
    responses_outage_status: int = setting(
        readers.whole(400, 599),
        _RESPONSES,
        "STATUS",
        "for what is refused for want of a store",
        default=503,
    )
    responses_shed_status: int = setting(
        readers.whole(400, 599), _RESPONSES, "STATUS", "the same for want of capacity", default=503
    )

    log_level: str = setting(
        readers.choice("debug", "info", "warning", "error"),
        _LOGS,
        "debug, info, warning or error",
        "what is told on stderr",
        default="info",
    )
    log_format: str = setting(
        readers.choice("text", "json"),
        _LOGS,
        "text or json",
        "JSON is a line for each",
        default="text",
    )
    log_denials: int = setting(
        readers.whole(0, 1_000),
        _LOGS,
        "N",
        "how many refusals of each rule are told a second, with hashed keys; 0 for none",
        default=0,
    )
