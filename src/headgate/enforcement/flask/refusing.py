"""A refusal as Flask knows it: an error that its handlers may answer."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

from flask import current_app
from werkzeug.exceptions import HTTPException, default_exceptions

if TYPE_CHECKING:
    from headgate.responses import Refusal


def refused(refusal: Refusal) -> HTTPException:
    """What to raise for *refusal*: for 429 a `TooManyRequests` of Werkzeug's.

    Without a handler of the app's it is answered with the refusal. A handler finds what happened in
    `description`, and the seconds to wait, or None, in `retry_after`.
    """
    response = current_app.response_class(
        refusal.body, refusal.status, headers=list(refusal.headers)
    )
    told = json.loads(refusal.body)
    error = _kind(refusal.status)(told.get("message") or told.get("detail"), response)
    error.retry_after = told.get("retry_after")  # type: ignore[attr-defined]
    return error


@lru_cache(maxsize=16)
def _kind(status: int) -> type[HTTPException]:
    """The class of refusals with *status*: handlers are found by it."""
    known = default_exceptions.get(status, HTTPException)
    return type("Refused", (known,), {"code": status, "__module__": __name__})
