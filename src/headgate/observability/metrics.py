"""Metrics by name and labels, and their text format for Prometheus.

A caller gets its `Counter` once and keeps it; gauges are read when metrics are collected. A process
has one registry, `METRICS`. Labels are bounded: rules, reasons, modes, never keys. `asgi_metrics`
and `wsgi_metrics` serve the text under any path.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal
from weakref import WeakMethod

from headgate.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Container, Iterable, Iterator, MutableMapping


Labels = tuple[tuple[str, str], ...]
Kind = Literal["counter", "gauge", "histogram"]
Sample = tuple[str, Labels, float]
"""The suffix of the name (none, `_total`, `_bucket`, `_sum`, `_count`), the labels, the value."""

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class MetricSnapshot:
    """The samples of one metric at one moment."""

    name: str
    kind: Kind
    help: str
    samples: tuple[Sample, ...]

    def labelled(self, extra: Labels) -> MetricSnapshot:
        """Return a copy with the labels *extra* before those of each sample."""
        samples = tuple((suffix, extra + labels, value) for suffix, labels, value in self.samples)
        return replace(self, samples=samples) if extra else self


def text_of(snapshots: Iterable[MetricSnapshot]) -> str:
    """Return *snapshots* in the text format of Prometheus, grouped by name."""
    by_name: dict[str, list[MetricSnapshot]] = {}
    for snapshot in snapshots:
        by_name.setdefault(snapshot.name, []).append(snapshot)
    lines = []
    for name, group in sorted(by_name.items()):
        first = group[0]
        full_name = f"{name}_total" if first.kind == "counter" else name
        lines += [f"# HELP {full_name} {first.help}", f"# TYPE {full_name} {first.kind}"]
        lines += [
            f"{name}{suffix}{_braced(labels)} {_number(value)}"
            for snapshot in group
            for suffix, labels, value in snapshot.samples
        ]
    return "\n".join([*lines, ""])


def _braced(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    """Escape *value*; half a surrogate pair, which UTF-8 cannot encode, becomes a question mark."""
    if not value.isascii():
        value = value.encode("utf-8", "replace").decode("utf-8")
    return value.translate(_ESCAPES)


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


PREFIX: Final = "headgate_"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


class Counter:
    """A number that only grows.

    Counted without a lock, in one step that no other thread interrupts; where a call takes too
    long, add to `value` itself.
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        self.value += amount


Reader = WeakMethod[Callable[[], float]]
"""A bound method that is called for as long as its object lives."""

_FEW_READERS: Final = 16
"""Readers of one metric that are never searched for those of dead objects."""


class Family:
    """The metrics of one name."""

    __slots__ = ("_capacity", "collectors", "counters", "help", "kind", "name", "readers")

    def __init__(self, name: str, kind: Kind, text: str) -> None:
        if not _NAME.fullmatch(name):
            raise OptionError(
                f"{name!r} is not the name of a metric; expected one like store_errors"
            )
        self.name = name
        self.kind = kind
        self.help = text
        self.counters: dict[Labels, Counter] = {}
        self.readers: dict[Labels, list[Reader]] = {}
        self._capacity: dict[Labels, int] = {}
        self.collectors: list[Callable[[], Iterable[Sample]]] = []

    def snapshot(self, *, with_samples: bool = True) -> MetricSnapshot:
        """Return all samples of now."""
        if not with_samples:
            return MetricSnapshot(PREFIX + self.name, self.kind, self.help, ())
        suffix = "_total" if self.kind == "counter" else ""
        samples = [(suffix, labels, value) for labels, value in self.samples()]
        for collect in self.collectors:
            samples += collect()
        return MetricSnapshot(PREFIX + self.name, self.kind, self.help, tuple(samples))

    def samples(self) -> Iterator[tuple[Labels, float]]:
        """Yield the value for each set of labels; readers with equal labels are added up."""
        for labels, counter in list(self.counters.items()):
            yield labels, counter.value
        for labels, readers in list(self.readers.items()):
            live = [read() for reader in list(readers) if (read := reader()) is not None]
            if live:
                yield labels, sum(live)

    def add(self, labels: Labels, read: Callable[[], float]) -> None:
        """Add the reader *read* and remove those of dead objects.

        Many readers are searched only when their number has doubled since the last time.
        """
        readers = self.readers.setdefault(labels, [])
        if len(readers) >= self._capacity.get(labels, _FEW_READERS):
            readers[:] = [reader for reader in readers if reader() is not None]
            self._capacity[labels] = max(_FEW_READERS, 2 * len(readers))
        readers.append(WeakMethod(read))


class MetricRegistry:
    """The metrics of a process."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}
        self._extra: Labels = ()
        self._watchers: tuple[Callable[[Family], None], ...] = ()
        self._lock = threading.Lock()

    def mark(self, **labels: str) -> None:
        """Add *labels* to every sample: the number of this process, if any of several may answer.

        Without it their counters seem to go back and forth.
        """
        self._extra = _labels(labels)

    def counter(self, name: str, text: str, **labels: str) -> Counter:
        """Return the counter *name* with *labels*, made on the first call."""
        family = self._family(name, "counter", text)
        with self._lock:
            return family.counters.setdefault(_labels(labels), Counter())

    def gauge(self, name: str, text: str, read: Callable[[], float], **labels: str) -> None:
        """Add a gauge with the value of *read*, a bound method, for as long as its object lives."""
        family = self._family(name, "gauge", text)
        with self._lock:
            family.add(_labels(labels), read)

    def collect(
        self, name: str, kind: Kind, text: str, read: Callable[[], Iterable[Sample]]
    ) -> None:
        """Add the samples that *read* returns, for values with many labels that others count."""
        self._family(name, kind, text).collectors.append(read)

    def watch(self, on_family: Callable[[Family], None]) -> None:
        """Call *on_family* with each family, those of the future in the thread that adds them."""
        with self._lock:
            self._watchers = (*self._watchers, on_family)
            known = list(self._families.values())
        for family in known:
            on_family(family)

    def snapshot(self, *, bare: Container[str] = ()) -> list[MetricSnapshot]:
        """Return all metrics that have samples, sorted by name.

        Those whose names are in *bare* come without samples, for callers with their own.
        """
        extra = self._extra
        with self._lock:
            families = sorted(self._families.values(), key=lambda family: family.name)
        snapshots = (family.snapshot(with_samples=family.name not in bare) for family in families)
        return [
            snapshot.labelled(extra)
            for snapshot in snapshots
            if snapshot.samples or snapshot.name.removeprefix(PREFIX) in bare
        ]

    def text(self) -> str:
        """Return all metrics in the text format of Prometheus."""
        return text_of(self.snapshot())

    def value(self, name: str, **labels: str) -> float:
        """Return the value of *name* with *labels* now; 0 if there is none."""
        family, given = self._families.get(name), _labels(labels)
        samples = () if family is None else family.snapshot().samples
        return next((value for _, found, value in samples if found == given), 0)

    def after_fork(self) -> None:
        """Replace the lock in a forked process, where no thread is left to release it."""
        self._lock = threading.Lock()

    def _family(self, name: str, kind: Kind, text: str) -> Family:
        """Return the family *name*, made if there is none. Watchers run without the lock."""
        watchers: tuple[Callable[[Family], None], ...] = ()
        with self._lock:
            family = self._families.get(name)
            if family is None:
                family = self._families[name] = Family(name, kind, text)
                watchers = self._watchers
        for on_family in watchers:
            on_family(family)
        if family.kind != kind:
            raise OptionError(f"{name} is a {family.kind} already; it cannot be a {kind}")
        return family


def _labels(labels: dict[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


METRICS: Final = MetricRegistry()
"""The metrics of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=METRICS.after_fork)


if TYPE_CHECKING:
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of the text format of Prometheus."""

_METHODS: Final = ("GET", "HEAD")


def metrics_text() -> str:
    """Return all metrics of this process in the text format of Prometheus (`CONTENT_TYPE`)."""
    return METRICS.text()


class AsgiMetrics:
    """An ASGI app that serves the metrics of this process.

    An object, not a function: routers such as Starlette's take only that for an app.
    """

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
    """Serve the metrics of this process as a WSGI app."""
    status, lines, body = _answer(environ["REQUEST_METHOD"])
    start_response(status, lines)
    return [body]


def _answer(method: str) -> tuple[str, list[tuple[str, str]], bytes]:
    if method not in _METHODS:
        lines = [("Allow", ", ".join(_METHODS)), ("Content-Type", CONTENT_TYPE)]
        return "405 Method Not Allowed", [*lines, ("Content-Length", "0")], b""
    text = metrics_text().encode()
    lines = [
        ("Content-Type", CONTENT_TYPE),
        ("Cache-Control", "no-store"),
        ("Content-Length", str(len(text))),
    ]
    return "200 OK", lines, text if method == "GET" else b""


async def _live(receive: Receive, send: Send) -> None:
    """Confirm startup and shutdown of the server."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
