"""The limiter of a Django project, from the setting `HEADGATE`."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any, Final, cast

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from headgate.errors import HeadgateError
from headgate.integrations.request_limiter import LimiterOptions, RequestLimiter
from headgate.integrations.route_limit import check_names
from headgate.responses import ResponseOptions

SETTING: Final = "HEADGATE"

_FUNCTIONS: Final = ("key", "cost", "limits", "exempt_when", "charge_when", "clock")
"""The options that may be the dotted path of a function."""

_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
"""A dotted path. No limit is written like one: those begin with a number."""

_limiters: dict[str, RequestLimiter] = {}
_lock = threading.Lock()


def current_limiter() -> RequestLimiter:
    """The limiter of this process, made on first use.

    `ImproperlyConfigured` if the setting is wrong.
    """
    limiter = _limiters.get(SETTING)
    if limiter is None:
        with _lock:
            limiter = _limiters.get(SETTING)
            if limiter is None:
                limiter = _limiters[SETTING] = limiter_from(getattr(settings, SETTING, None))
    return limiter


def check_setting(*, is_async: bool) -> None:
    """Report a wrong setting; also a function that is async, if the project *is_async* not."""
    limiter = current_limiter()
    try:
        if not is_async and limiter.limit is not None:
            limiter.limit.check_blocking()
    except HeadgateError as error:
        raise ImproperlyConfigured(f"{SETTING}: {error}") from error


def limiter_from(setting: object) -> RequestLimiter:
    """The limiter of *setting*: the options of `RequestLimiter`, functions as dotted paths too.

    Its store is opened now: the first request may come in several threads at once.
    """
    if setting is None:
        setting = {}
    if not isinstance(setting, Mapping):
        raise ImproperlyConfigured(
            f"{SETTING} is {setting!r}; expected a dict such as {{'limits': '100/minute'}}"
        )
    try:
        check_names(setting, LimiterOptions.__optional_keys__, SETTING)
        options = {name: _read(name, setting[name]) for name in setting}
        limiter = RequestLimiter(**cast("LimiterOptions", options))
        _ = limiter.engine
    except HeadgateError as error:
        raise ImproperlyConfigured(f"{SETTING}: {error}") from error
    return limiter


def _read(name: str, value: Any) -> Any:
    if name in _FUNCTIONS and isinstance(value, str) and _DOTTED.fullmatch(value):
        try:
            return import_string(value)
        except ImportError as error:
            raise ImproperlyConfigured(f"{SETTING}[{name!r}]: {error}") from error
    if name == "responses" and isinstance(value, Mapping):
        check_names(value, ResponseOptions.__dataclass_fields__, repr(name))
        return ResponseOptions(**value)
    return value


def _forget(*, setting: str, **_: object) -> None:
    """Forget the limiter: tests change settings."""
    if setting == SETTING:
        with _lock:
            limiter = _limiters.pop(SETTING, None)
        if limiter is not None:
            limiter.close()


setting_changed.connect(_forget, dispatch_uid="headgate.integrations.django")
