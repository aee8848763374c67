"""The options of a Redis URL, as tests want them."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

PATIENCE = 10
"""Seconds that an operation may take: a deadline of 50 ms is for machines that do nothing else."""


def with_options(url: str, **options: object) -> str:
    """*url* with these *options* in place of those that it has of the same names."""
    start, _, query = url.partition("?")
    given = {**dict(parse_qsl(query)), **{name: str(value) for name, value in options.items()}}
    return f"{start}?{urlencode(given, safe='/')}" if given else start
