"""Counters, gauges and histograms by name and labels.

Whoever counts asks once for its `Counter` and keeps it; a gauge is read when it is told. There is
one `MEASURES` for a process. Labels must be few: rules, reasons, modes; never keys. How they are
written is in `exposition`.
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from headgate.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, MutableMapping


# Measures as they are told: values that can be kept, sent and merged, and Prometheus's text.


Labels = tuple[tuple[str, str], ...]
Kind = Literal["counter", "gauge", "histogram"]
Sample = tuple[str, Labels, float]
"""What a name has at its end (nothing, `_total`, `_bucket`, `_sum`, `_count`), labels, a number."""

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Told:
    """All samples of one name, as they were at one moment."""

    name: str
    kind: Kind
    help: str
    samples: tuple[Sample, ...]

    def marked(self, marks: Labels) -> Told:
        """The same, with the labels *marks* before their own."""
        if not marks:
            return self
        return replace(
            self, samples=tuple((end, marks + labels, value) for end, labels, value in self.samples)
        )


def text_of(families: Iterable[Told]) -> str:
    """All *families*, as Prometheus reads it. Those of one name stand together."""
    by_name: dict[str, list[Told]] = {}
    for family in families:
        by_name.setdefault(family.name, []).append(family)
    lines = []
    for name, together in sorted(by_name.items()):
        first = together[0]
        named = f"{name}_total" if first.kind == "counter" else name
        lines += [f"# HELP {named} {first.help}", f"# TYPE {named} {first.kind}"]
        for family in together:
            lines += [
                f"{name}{end}{_shown(labels)} {_number(value)}"
                for end, labels, value in family.samples
            ]
    return "\n".join([*lines, ""])


def _shown(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{pairs}}}"


def _escaped(value: str) -> str:
    """*value* between quotes; of half a character, which no text can carry, a question mark."""
    if not value.isascii():
        value = value.encode("utf-8", "replace").decode("utf-8")
    return value.translate(_ESCAPES)


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


PREFIX: Final = "headgate_"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


class Counter:
    """A number that only grows."""

    __slots__ = ("_lock", "_value")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value = 0

    def add(self, amount: int = 1) -> None:
        with self._lock:
            self._value += amount

    def after_fork(self) -> None:
        """As `Measures.after_fork`; what was counted stays."""
        self._lock = threading.Lock()

    @property
    def value(self) -> int:
        return self._value


class _Reader:
    """Asks *read*, a bound method, for as long as its object lives."""

    __slots__ = ("_method", "last")

    def __init__(self, read: Callable[[], float]) -> None:
        self._method: weakref.WeakMethod[Callable[[], float]] = weakref.WeakMethod(read)
        self.last: float = 0
        """What it said when it was last asked."""

    @property
    def is_live(self) -> bool:
        return self._method() is not None

    def asked(self) -> float | None:
        """What it says now; None if nobody is left to say it."""
        read = self._method()
        if read is None:
            return None
        self.last = read()
        return self.last


_FEW: Final = 16
"""So many readers are looked through each time that one is added."""


class Family:
    """All measures of one name."""

    __slots__ = ("_room", "collectors", "counters", "help", "kind", "name", "readers", "settled")

    def __init__(self, name: str, kind: Kind, text: str) -> None:
        if not _NAME.fullmatch(name):
            raise OptionError(f"{name!r} is not the name of a measure; expected like store_errors")
        self.name = name
        self.kind = kind
        self.help = text
        self.counters: dict[Labels, Counter] = {}
        self.readers: dict[Labels, list[_Reader]] = {}
        self._room: dict[Labels, int] = {}
        self.settled: dict[Labels, float] = {}
        """What those had counted last that are gone, for a counter must not become less."""
        self.collectors: list[Callable[[], Iterable[Sample]]] = []

    def told(self) -> Told:
        """All of them as they are now."""
        suffix = "_total" if self.kind == "counter" else ""
        samples = [(suffix, labels, value) for labels, value in self.samples()]
        for collect in self.collectors:
            samples += collect()
        return Told(PREFIX + self.name, self.kind, self.help, tuple(samples))

    def bare(self) -> Told:
        """What they are, without what they say."""
        return Told(PREFIX + self.name, self.kind, self.help, ())

    def samples(self) -> Iterator[tuple[Labels, float]]:
        """What each measure says; those of equal labels that are read are added up."""
        for labels, counter in list(self.counters.items()):
            yield labels, counter.value
        for labels, readers in list(self.readers.items()):
            said = [(reader.asked(), reader.last) for reader in list(readers)]
            if self.kind == "counter":
                yield labels, self.settled.get(labels, 0) + sum(last for _, last in said)
            elif live := [value for value, _ in said if value is not None]:
                yield labels, sum(live)

    def add(self, labels: Labels, read: Callable[[], float]) -> None:
        """Ask *read* from now on, and no longer those that are gone.

        Of many readers those are looked for only when there are twice as many as were left.
        """
        readers = self.readers.setdefault(labels, [])
        if _FEW < len(readers) < self._room.get(labels, 0):
            readers.append(_Reader(read))
            return
        gone = sum(reader.last for reader in readers if not reader.is_live)
        if gone and self.kind == "counter":
            self.settled[labels] = self.settled.get(labels, 0) + gone
        readers[:] = [*(reader for reader in readers if reader.is_live), _Reader(read)]
        self._room[labels] = 2 * len(readers)


class Measures:
    """All measures of a process."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        self._marks: Labels = ()
        self._watchers: tuple[Callable[[Family], None], ...] = ()
        self._lock = threading.Lock()

    def mark(self, **labels: str) -> None:
        """Tell all of them with *labels* besides: which process of several this is, where any may
        answer. Without that their counters would seem to go back and forth."""
        self._marks = _labels(labels)

    def counter(self, name: str, text: str, **labels: str) -> Counter:
        """The counter *name* with *labels*; made when it is first asked for."""
        family = self._family(name, "counter", text)
        with self._lock:
            return family.counters.setdefault(_labels(labels), Counter())

    def tally(self, name: str, text: str, read: Callable[[], float], **labels: str) -> None:
        """As `counter`, for what counts by itself: *read*, a bound method, says how many by now.

        For what is done so often that a `Counter`, which has a lock, would cost too much. What it
        says must not become less; when its object is gone, what it said last is told on.
        """
        self._add_reader(name, "counter", text, read, labels)

    def gauge(self, name: str, text: str, read: Callable[[], float], **labels: str) -> None:
        """Tell what *read*, a bound method, says for as long as its object lives."""
        self._add_reader(name, "gauge", text, read, labels)

    def collect(
        self, name: str, kind: Kind, text: str, read: Callable[[], Iterable[Sample]]
    ) -> None:
        """Tell whatever samples *read* gives: for what is counted elsewhere, under many labels.

        A sample is what its name has at its end (`_total`, `_bucket`, ...), labels, and a number.
        It is told for as long as the process lives.
        """
        self._family(name, kind, text).collectors.append(read)

    def watch(self, hear: Callable[[Family], None]) -> Callable[[], None]:
        """Have *hear* told of each name that there is, and of each that will be, in the thread that
        first uses it. What is returned ends that."""
        with self._lock:
            self._watchers = (*self._watchers, hear)
            known = list(self._families.values())
        for family in known:
            hear(family)

        def end() -> None:
            with self._lock:
                self._watchers = tuple(one for one in self._watchers if one is not hear)

        return end

    def told(self, *, bare: Container[str] = ()) -> list[Told]:
        """All of them that have something to say, in the order of their names.

        Those whose names are in *bare* without their samples: for who knows them better.
        """
        marks = self._marks
        with self._lock:
            families = sorted(self._families.values(), key=lambda family: family.name)
        told = [family.bare() if family.name in bare else family.told() for family in families]
        return [
            one.marked(marks)
            for one, family in zip(told, families, strict=True)
            if one.samples or family.name in bare
        ]

    def text(self) -> str:
        """All of them, as Prometheus reads it."""
        return text_of(self.told())

    def value(self, name: str, **labels: str) -> float:
        """What the measure *name* with *labels* says now; 0 if there is none."""
        family = self._families.get(name)
        found = {} if family is None else dict(family.samples())
        return found.get(_labels(labels), 0)

    def after_fork(self) -> None:
        """In a forked process: no thread is left that would give a lock back."""
        self._lock = threading.Lock()
        for family in self._families.values():
            for counter in family.counters.values():
                counter.after_fork()

    def _add_reader(
        self, name: str, kind: Kind, text: str, read: Callable[[], float], labels: dict[str, str]
    ) -> None:
        family = self._family(name, kind, text)
        with self._lock:
            family.add(_labels(labels), read)

    def _family(self, name: str, kind: Kind, text: str) -> Family:
        """The family *name*, made if there is none. Not to be called with the lock held: those who
        watch may take their time."""
        hearing: tuple[Callable[[Family], None], ...] = ()
        with self._lock:
            family = self._families.get(name)
            if family is None:
                family = self._families[name] = Family(name, kind, text)
                hearing = self._watchers
        for hear in hearing:
            hear(family)
        if family.kind != kind:
            raise OptionError(f"{name} is a {family.kind} already; it cannot be a {kind}")
        return family


def _labels(labels: dict[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


MEASURES: Final = Measures()
"""Those of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=MEASURES.after_fork)


# The measures of a process over HTTP, for apps that answer `/metrics` themselves.
#
# Both apps answer GET and HEAD under whatever path they are mounted at. They need no package.


if TYPE_CHECKING:
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""That of Prometheus's text."""

_METHODS: Final = ("GET", "HEAD")


def metrics_text() -> str:
    """All measures of this process, as Prometheus reads them (see `CONTENT_TYPE`)."""
    return MEASURES.text()


class AsgiMetrics:
    """An ASGI app that tells them. (An object, not a function: as such frameworks that route to
    apps, such as Starlette, know it for one.)"""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            status, lines, body = _answer(scope["method"])
            headers = [(name.lower().encode(), value.encode()) for name, value in lines]
            start = {"type": "http.response.start", "status": int(status[:3]), "headers": headers}
            await send(start)
            await send({"type": "http.response.body", "body": body})
        else:
            await send({"type": "websocket.close"})


asgi_metrics: Final = AsgiMetrics()


def wsgi_metrics(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """A WSGI app that tells them."""
    status, lines, body = _answer(environ["REQUEST_METHOD"])
    start_response(status, lines)
    return [body]


def _answer(method: str) -> tuple[str, list[tuple[str, str]], bytes]:
    if method not in _METHODS:
        refused = [("Allow", ", ".join(_METHODS)), ("Content-Type", CONTENT_TYPE)]
        return "405 Method Not Allowed", [*refused, ("Content-Length", "0")], b""
    text = metrics_text().encode()
    lines = [
        ("Content-Type", CONTENT_TYPE),
        ("Cache-Control", "no-store"),
        ("Content-Length", str(len(text))),
    ]
    return "200 OK", lines, text if method == "GET" else b""


async def _live(receive: Receive, send: Send) -> None:
    """Begin and end with the server: there is nothing to do for it."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
