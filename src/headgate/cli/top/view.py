"""What somebody looks at: which rules, in which order; and what the keys do to that."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.cli.top.live import Live, Rule

Order = Literal["traffic", "denied", "would deny", "share", "name", "policy"]
ORDERS: Final[tuple[Order, ...]] = ("traffic", "denied", "would deny", "share", "name", "policy")

_PAGE: Final = 10
_SEQUENCE: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~])|.", re.DOTALL)
_NAMES: Final = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"k": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"j": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b[H": "first",
    b"\x1b[1~": "first",
    b"g": "first",
    b"\x1b[F": "last",
    b"\x1b[4~": "last",
    b"G": "last",
    b"\r": "open",
    b"\n": "open",
    b"\x1b": "back",
    b"\x7f": "back",
    b"s": "sort",
    b"p": "pause",
    b" ": "pause",
    b"?": "help",
    b"h": "help",
    b"q": "quit",
    b"Q": "quit",
    b"\x03": "quit",
    b"\x04": "quit",
}
_STEPS: Final = {"up": -1, "down": 1, "page up": -_PAGE, "page down": _PAGE}

KEYS_TOLD: Final = (
    ("up, down, j, k", "select a rule"),
    ("page up, page down", "ten at once"),
    ("g, G", "the first, the last"),
    ("enter", "look at the rule alone; esc goes back"),
    ("s", f"sort by {', '.join(ORDERS[:-1])} or as in the {ORDERS[-1]}"),
    ("p, space", "pause, and go on"),
    ("?", "this help, and back"),
    ("q, Ctrl-C", "quit"),
)


def keys_in(pressed: bytes) -> list[str]:
    """The names of the keys that a terminal sent as *pressed*; those without a meaning left out."""
    found = (_NAMES.get(one) for one in _SEQUENCE.findall(pressed))
    return [name for name in found if name is not None]


@dataclass(frozen=True, slots=True)
class View:
    """*picked* is the rule that is selected, *alone* the one that is looked at, if one is."""

    order: Order = "traffic"
    picked: str | None = None
    alone: str | None = None
    is_paused: bool = False
    is_help: bool = False
    is_over: bool = False

    def after(self, key: str, live: Live | None) -> View:
        """What is looked at once *key* was pressed, with *live* on the screen."""
        match key:
            case "quit":
                return replace(self, is_over=True)
            case "help":
                return replace(self, is_help=not self.is_help)
            case "pause":
                return replace(self, is_paused=not self.is_paused)
            case "sort":
                following = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
                return replace(self, order=following)
            case "back":
                return replace(self, alone=None, is_help=False)
            case "open":
                return replace(self, alone=self.picked, is_help=False)
        return self._moved(key, live)

    def sorted(self, live: Live) -> list[Rule]:
        """The rules in the order that is wanted; those alike as in the policy."""
        key = _BY[self.order]
        return list(live.rules) if key is None else sorted(live.rules, key=key)

    def place(self, rules: list[Rule]) -> int | None:
        """Where in *rules* the selected one is."""
        return next((n for n, one in enumerate(rules) if one.rule_id == self.picked), None)

    def _moved(self, key: str, live: Live | None) -> View:
        rules = [] if live is None else self.sorted(live)
        if not rules or self.alone is not None:
            return self
        place = self.place(rules)
        if key in ("first", "last"):
            place = 0 if key == "first" else len(rules) - 1
        elif place is None:
            place = 0
        else:
            place = min(max(place + _STEPS.get(key, 0), 0), len(rules) - 1)
        return replace(self, picked=rules[place].rule_id)


_BY: Final[dict[Order, Callable[[Rule], Any] | None]] = {
    "traffic": lambda one: -one.traffic,
    "denied": lambda one: (-one.denied_rate, -one.traffic),
    "would deny": lambda one: (-one.shadow_rate, -one.traffic),
    "share": lambda one: (-(one.denied_share or 0.0), -one.traffic),
    "name": lambda one: one.rule_id,
    "policy": None,
}
