"""The gate of a Django project, as the setting `HEADGATE` describes it."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, cast

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from headgate.errors import HeadgateError
from headgate.integrations.gate import Gate, GateOptions
from headgate.responses import ResponseOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

SETTING: Final = "HEADGATE"

_OPTIONS: Final = frozenset(GateOptions.__annotations__)
_FUNCTIONS: Final = ("key", "cost", "limits", "exempt_when", "charge_when", "clock")
"""The options that may be the dotted path of a function."""

_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
"""A dotted path. No limit is written like one: those begin with a number."""

_gates: dict[str, Gate] = {}
_making = threading.Lock()


def current_gate() -> Gate:
    """The gate of this process, made when it is first asked for.

    `ImproperlyConfigured` if the setting makes no sense.
    """
    gate = _gates.get(SETTING)
    if gate is None:
        with _making:
            gate = _gates.get(SETTING)
            if gate is None:
                gate = _gates[SETTING] = gate_from(getattr(settings, SETTING, None))
    return gate


def check_setting(*, is_async: bool) -> None:
    """See that the gate can be made, and serves code that blocks, or code that must not."""
    gate = current_gate()
    try:
        if is_async:
            _ = gate.engine
            return
        if gate.allowance is not None:
            gate.allowance.refuse_async()
        _ = gate.engine
    except HeadgateError as error:
        raise ImproperlyConfigured(f"{SETTING}: {error}") from error


def gate_from(setting: object) -> Gate:
    """The gate that *setting* describes: the options of `Gate`, functions as dotted paths too."""
    if setting is None:
        setting = {}
    if not isinstance(setting, Mapping):
        raise ImproperlyConfigured(
            f"{SETTING} is {setting!r}; expected a dict such as {{'limits': '100/minute'}}"
        )
    _check_names(setting, _OPTIONS, SETTING)
    try:
        gate = Gate(**cast("GateOptions", {name: _read(name, setting[name]) for name in setting}))
        _open(gate)
    except HeadgateError as error:
        raise ImproperlyConfigured(f"{SETTING}: {error}") from error
    return gate


def _open(gate: Gate) -> None:
    """Find the store now: several threads may have the first request, and must not each."""
    _ = gate.engine


def _read(name: str, value: Any) -> Any:
    if name in _FUNCTIONS and isinstance(value, str) and _DOTTED.fullmatch(value):
        try:
            return import_string(value)
        except ImportError as error:
            raise ImproperlyConfigured(f"{SETTING}[{name!r}]: {error}") from error
    if name == "responses" and isinstance(value, Mapping):
        _check_names(value, ResponseOptions.__dataclass_fields__, f"{SETTING}[{name!r}]")
        return ResponseOptions(**value)
    return value


def _check_names(given: Mapping[Any, Any], known: Iterable[str], where: str) -> None:
    words = sorted(known)
    for name in given:
        if name not in words:
            near = get_close_matches(str(name), words, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"expected {', '.join(words)}"
            raise ImproperlyConfigured(f"{where} has no option {name!r}; {hint}")


def _forget(*, setting: str, **_: object) -> None:
    """Tests change settings: the next request finds a gate made of the new one."""
    if setting == SETTING:
        with _making:
            gate = _gates.pop(SETTING, None)
        if gate is not None:
            gate.close()


setting_changed.connect(_forget, dispatch_uid="headgate.integrations.django")
