"""What may happen to one server, and to the way to it."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.support.faults.proxy import FaultyProxy
from tests.support.servers import RedisServer, ServerError, wait_until
from tests.support.servers.ports import HOST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.support.faults.invariants import Effect

MOST_CLIENTS: Final = 200
GREETED: Final = 8
"""Bytes: a new connection gets its first reply ("+OK"), so that it is used, but no whole one after
it: what is sent over it is done, and nobody hears of it."""
CONFIG: Final[Sequence[str]] = (
    "enable-debug-command yes",
    "lua-time-limit 10",
    f"maxclients {MOST_CLIENTS}",
)


@dataclass(frozen=True)
class Scene:
    """The server, and the proxy that all but the witnesses go through."""

    server: RedisServer
    proxy: FaultyProxy

    @property
    def url(self) -> str:
        return f"redis://{self.server.credentials}{self.proxy.address}/0"


def on_the_way(*orders: Callable[[FaultyProxy], None]) -> Callable[[Scene], Iterator[None]]:
    """What the proxy is told, one thing after the other, until it is healed."""

    def inflict(scene: Scene) -> Iterator[None]:
        for order in orders:
            order(scene.proxy)
        yield
        scene.proxy.heal()

    return inflict


def by_commands(*pair: tuple[str, str]) -> Callable[[Scene], Iterator[None]]:
    """What the server is told at the beginning, and at the end."""

    def inflict(scene: Scene) -> Iterator[None]:
        for begin, _ in pair:
            scene.server.cli(*begin.split())
        yield
        for _, end in pair:
            scene.server.cli(*end.split())

    return inflict


def stopped(scene: Scene) -> Iterator[None]:
    scene.server.pause()
    yield
    scene.server.resume()


def busy(scene: Scene) -> Iterator[None]:
    with in_background(scene.server, "eval", "while true do end", "0"):
        wait_until(lambda: is_answered_with(scene.server, "BUSY"), "the server is busy")
        yield
        scene.server.cli("script", "kill")


def loading(scene: Scene) -> Iterator[None]:
    server = scene.server
    server.cli("debug", "populate", "5000")
    server.cli("config", "set", "loading-process-events-interval-bytes", "1024")
    server.cli("config", "set", "key-load-delay", "1000")
    with in_background(server, "debug", "reload"):
        wait_until(lambda: is_answered_with(server, "LOADING"), "the server is loading")
        yield
        server.cli("config", "set", "key-load-delay", "0")


def wrong_password(scene: Scene) -> Iterator[None]:
    user = scene.server.user
    assert user is not None
    scene.server.cli("acl", "setuser", user.name, "resetpass", ">another")
    scene.proxy.reset_connections()
    yield
    scene.server.cli("acl", "setuser", user.name, "resetpass", f">{user.password}")


def too_many_clients(scene: Scene) -> Iterator[None]:
    scene.proxy.reset_connections()
    with ExitStack() as crowd:
        place = (HOST, scene.server.port)
        for _ in range(MOST_CLIENTS + 10):
            one = crowd.enter_context(socket.create_connection(place, timeout=10.0))
        assert b"max number of clients" in one.recv(100)
        yield


def crashed(scene: Scene) -> Iterator[None]:
    scene.server.kill()
    yield
    scene.server.restart()


def asleep(scene: Scene) -> Iterator[None]:
    with in_background(scene.server, "debug", "sleep", "0.6"):
        yield


def scripts_flushed(scene: Scene) -> Iterator[None]:
    yield from _over_and_over(lambda: scene.server.cli("script", "flush"))


def connections_killed(scene: Scene) -> Iterator[None]:
    yield from _over_and_over(
        lambda: scene.server.cli("client", "kill", "type", "normal", "skipme", "yes")
    )


def _over_and_over(order: Callable[[], object]) -> Iterator[None]:
    over = threading.Event()

    def give() -> None:
        while not over.wait(0.01):
            order()

    thread = threading.Thread(target=give)
    thread.start()
    yield
    over.set()
    thread.join()


@contextmanager
def in_background(server: RedisServer, *command: str) -> Iterator[None]:
    """Send *command* and go on; its answer, if only an error, has come when the block is left."""

    def send() -> None:
        with suppress(ServerError):
            server.cli(*command, within=60.0)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def is_answered_with(server: RedisServer, word: str) -> bool:
    try:
        server.cli("get", "anything", within=1.0)
    except ServerError as error:
        return word in str(error)
    return False


@dataclass(frozen=True)
class Fault:
    """Something that happens, and which decisions of the store it prevents."""

    inflict: Callable[[Scene], Iterator[None]]
    effect: Effect = "all"
    keeps_data: bool = True


FAULTS: Final = {
    "a partition": Fault(on_the_way(FaultyProxy.partition)),
    "swallowed replies": Fault(on_the_way(FaultyProxy.swallow_replies)),
    "swallowed requests": Fault(on_the_way(FaultyProxy.swallow_requests)),
    "replies far too late": Fault(on_the_way(lambda p: p.delay_replies(ms=60_000))),
    "requests far too late": Fault(on_the_way(lambda p: p.delay_requests(ms=60_000))),
    "some replies too late": Fault(
        on_the_way(lambda p: p.delay_replies(ms=0, jitter_ms=300)), effect="some"
    ),
    "a slow way": Fault(
        on_the_way(lambda p: p.delay_replies(ms=2, jitter_ms=5), lambda p: p.delay_requests(ms=2)),
        effect="some",
    ),
    "a trickle of replies": Fault(
        on_the_way(lambda p: p.trickle("replies", piece=2, every_ms=0.1)), effect="some"
    ),
    "a trickle that never ends": Fault(
        on_the_way(lambda p: p.trickle("replies", piece=1, every_ms=5_000))
    ),
    "truncated greetings": Fault(on_the_way(lambda p: p.cut_replies(after=2))),
    "truncated replies": Fault(on_the_way(lambda p: p.cut_replies(after=GREETED))),
    "truncated replies that hang": Fault(
        on_the_way(lambda p: p.cut_replies(after=GREETED, then="hang"))
    ),
    "resets in a reply": Fault(on_the_way(lambda p: p.cut_replies(after=GREETED, then="reset"))),
    "truncated requests": Fault(on_the_way(lambda p: p.cut_requests(after=20))),
    "resets in a request": Fault(on_the_way(lambda p: p.cut_requests(after=20, then="reset"))),
    "connections dropped once": Fault(on_the_way(FaultyProxy.cut_connections), effect="some"),
    "connections reset once": Fault(on_the_way(FaultyProxy.reset_connections), effect="some"),
    "connections refused": Fault(
        on_the_way(FaultyProxy.refuse_connections, FaultyProxy.reset_connections)
    ),
    "a stopped process": Fault(stopped),
    "a crash without data": Fault(crashed, keeps_data=False),
    "a server asleep": Fault(asleep, effect="some"),
    "writes paused": Fault(by_commands(("client pause 600000 write", "client unpause"))),
    "all paused for a while": Fault(by_commands(("client pause 600 all", "ping")), effect="some"),
    "no memory": Fault(by_commands(("config set maxmemory 1", "config set maxmemory 0"))),
    "a replica of nobody": Fault(
        by_commands(("replicaof 127.0.0.1 1", "replicaof no one")), keeps_data=True
    ),
    "too few replicas": Fault(
        by_commands(("config set min-replicas-to-write 1", "config set min-replicas-to-write 0"))
    ),
    "an endless script": Fault(busy),
    "a server that loads": Fault(loading),
    "a right taken away": Fault(
        by_commands(("acl setuser default -@scripting", "acl setuser default +@scripting"))
    ),
    "too many clients": Fault(too_many_clients),
    "scripts flushed under load": Fault(scripts_flushed, effect="none"),
    "connections killed under load": Fault(connections_killed, effect="some"),
    "all data flushed": Fault(by_commands(("flushall", "ping")), effect="none", keeps_data=False),
}
