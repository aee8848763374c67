"""What the limits of views are called, for clients and in the store."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from django.views import View

from headgate.enforcement.allowance import Names
from headgate.enforcement.naming import free_name, shown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headgate.enforcement.passage import Passage

_PER_VIEW: Counter[str] = Counter()
_counting = threading.Lock()


def view_of(view: Callable[..., Any]) -> View | None:
    """The class-based view that *view* is a bound method of, as `method_decorator` binds it."""
    method = view.func if isinstance(view, partial) else view
    found = getattr(method, "__self__", None)
    return found if isinstance(found, View) else None


def class_of(view: Callable[..., Any]) -> type | None:
    """The class that *view* was made of by `as_view`; Django REST framework calls it `cls`."""
    found = getattr(view, "view_class", None) or getattr(view, "cls", None)
    return found if isinstance(found, type) else None


def called(view: Callable[..., Any]) -> Names:
    """What *view* is called: the same in every process, and different from all other views.

    That of a class is called after the class: what `as_view` returns has always the same name, and
    so has a `dispatch` that was inherited.
    """
    instance = view_of(view)
    owner = class_of(view) if instance is None else type(instance)
    while isinstance(view, partial):
        view = view.func
    own = getattr(view, "__name__", type(view).__name__)
    if owner is None:
        place = getattr(view, "__qualname__", type(view).__qualname__)
        return Names(shown_name(own), f":{view.__module__}.{place}")
    name = owner.__name__ if instance is None or own == "dispatch" else f"{owner.__name__}.{own}"
    place = owner.__qualname__ if instance is None else f"{owner.__qualname__}.{own}"
    return Names(shown_name(name), f":{owner.__module__}.{place}")


class Numbers:
    """The numbers that one limit has among those of each view that it is for."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, view: str) -> int:
        """Its number at *view*: from 0, in the order in which they were put there."""
        number = self._numbers.get(view)
        if number is None:
            with _counting:
                number = self._numbers.setdefault(view, _PER_VIEW[view])
                _PER_VIEW[view] += 1
        return number


def told_apart(names: Iterable[Names], passage: Passage, given: Iterable[str] = ()) -> list[Names]:
    """*names*, shown so that clients can tell them from each other, from those that were told
    already and from *given* ones."""
    taken = {told.name for told in (*passage.told, *passage.refusal_told)}.union(given)
    found = []
    for name in names:
        shown = free_name(name.shown, taken)
        taken.add(shown)
        found.append(name._replace(shown=shown))
    return found
