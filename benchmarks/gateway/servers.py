"""Everything that runs: an upstream, the services, and an Envoy for each way to decide."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx

from benchmarks.gateway import by_hand
from benchmarks.gateway.ways import NO_RULES, SOON_REACHED, policy
from headgate.config import Address
from headgate.config.gateway import GatewaySettings, Upstream
from headgate.gateway.envoy.documents import documents
from headgate.gateway.envoy.values import Documents, Places
from headgate.policy.loader import read_policy
from tests.support.gateways import NGINX_HEAD
from tests.support.servers import ServerError, free_port, release_port, wait_until
from tests.support.servers.envoy import envoy_binary
from tests.support.servers.process import Driven, Process

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from benchmarks.gateway.ways import Way

_HOST: Final = "127.0.0.1"
_UPSTREAM: Final = """\
  keepalive_requests 1000000000;
  server {{
    listen 127.0.0.1:{port};
    location / {{ return 200 "ok"; }}
  }}
}}
"""
_TRIES: Final = 10
_TIGHT, _WIDE = 3, 100_000_000
"""A limit by hand, in requests a second: what refuses, and what does not."""


class Server(Driven):
    """A program in a process of its own, whose files are in *directory*."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports: list[int] = []
        self._process: Process | None = None
        directory.mkdir()

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def run(self, *call: str) -> None:
        self._process = Process(call, self.directory / "log")

    def port(self) -> int:
        self.ports.append(free_port())
        return self.ports[-1]

    def close(self) -> None:
        self.kill()
        for port in self.ports:
            release_port(port)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def threads(self) -> list[int]:
        """The ids of all threads of the process and of those that it has started."""
        group = self._running().pid
        found = (int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit())
        return [
            int(task.name)
            for process in found
            if _group_of(process) == group
            for task in Path(f"/proc/{process}/task").iterdir()
        ]

    def cpu_ns(self) -> int:
        """The processor time that all of them have had."""
        tasks = (Path(f"/proc/{thread}/schedstat") for thread in self.threads())
        return sum(int(task.read_text().split()[0]) for task in tasks)

    def stay_on(self, processors: Collection[int]) -> None:
        """Run on these *processors* only."""
        for thread in self.threads():
            os.sched_setaffinity(thread, processors)


def _group_of(process: int) -> int:
    try:
        return os.getpgid(process)
    except ProcessLookupError:
        return 0


class AppServer(Server):
    """The upstream: an nginx that answers at once."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.address = self.port()
        config = directory / "nginx.conf"
        config.write_text((NGINX_HEAD + _UPSTREAM).format(directory=directory, port=self.address))
        self.run("nginx", "-c", str(config), "-p", str(directory))
        wait_until(lambda: _status(self.address) == 200, "nginx answers")


class Service(Server):
    """What a gateway asks: where it is served, by what it goes over."""

    grpc: dict[str, str]
    http: dict[str, str]


class DecisionService(Service):
    """`headgate serve` under the policy *text*, on unix sockets and on ports."""

    def __init__(self, directory: Path, text: str, *flags: str) -> None:
        super().__init__(directory)
        self.grpc = {"unix": f"{directory}/grpc", "tcp": f"{_HOST}:{self.port()}"}
        self.http = {"unix": f"{directory}/http", "tcp": f"{_HOST}:{self.port()}"}
        self._rules = directory / "rules.yaml"
        self.follow(text)
        call = [sys.executable, "-m", "headgate.cli", "serve", "--rules", str(self._rules)]
        for flag, places in (("--grpc", self.grpc), ("--http", self.http)):
            call += [flag, f"unix:{places['unix']},{places['tcp']}"]
        self.run(*call, *flags)
        wait_until(self._serves, "the service serves", within=60.0)

    def follow(self, text: str) -> None:
        """Change the rules."""
        beside = self._rules.with_suffix(".new")
        beside.write_text(text, encoding="utf-8")
        beside.rename(self._rules)

    def _serves(self) -> bool:
        if not self._running().is_running:
            raise RuntimeError(f"the service has ended: {self.log}")
        port = int(self.http["tcp"].rpartition(":")[2])
        return _status(port, "/readyz") == 200


class Gateway(Server):
    """An Envoy with one thread that decides in one *way*."""

    def __init__(
        self, directory: Path, way: Way, app_port: int, service: Service, **settings: Any
    ) -> None:
        super().__init__(directory)
        self.way, self.service = way, service
        self.address = self.port()
        self._app_port = app_port
        self._settings = settings

    def start(self, text: str, *, is_tight: bool = False) -> None:
        """Run under the policy *text*, and wait until it lets a request pass."""
        made = self._documents(text, is_tight=is_tight)
        self._write("bootstrap.json", made.bootstrap)
        self._discover(made)
        config = str(self.directory / "bootstrap.json")
        call = (envoy_binary(), "--config-path", config, "--log-level", "error")
        self.run(*call, "--concurrency", "1", "--disable-hot-restart")
        try:
            wait_until(lambda: _status(self.address) == 200, self._says("Envoy answers"))
        except ServerError as error:
            raise ServerError(f"{error}; it printed:\n{self.log[-4000:]}") from error

    def must_limit(self) -> None:
        """Start under a limit that is soon reached, and wait until it refuses."""
        self.start(policy(self.way.service, SOON_REACHED), is_tight=True)
        if self.way.decide is not None:
            wait_until(lambda: 429 in self._statuses("tried"), self._says("it limits"))

    def must_pass(self) -> None:
        """Go on, under a limit that is never reached, and wait until it lets everything pass."""
        text = policy(self.way.service)
        if self.way.is_by_hand:
            self.kill()
            self.start(text)
        else:
            self._discover(self._documents(text, is_tight=False))
        passing = {200} if not self.way.is_example else {429}
        wait_until(lambda: set(self._statuses("measured")) == passing, self._says("it lets pass"))

    def _says(self, what: str) -> str:
        return f"{self.way.name}: {what}"

    def _statuses(self, key: str) -> list[int]:
        """What some requests of the caller *key* are answered."""
        method, path = self.way.tried
        url = f"http://{_HOST}:{self.address}{path}"
        with httpx.Client(trust_env=False, headers={"x-api-key": key}) as client:
            return [client.request(method, url).status_code for _ in range(_TRIES)]

    def _discover(self, made: Documents) -> None:
        for name, document in made.discovered.items():
            self._write(name, document)

    def _documents(self, text: str, *, is_tight: bool) -> Documents:
        way = self.way
        grpc, http = self.service.grpc[way.over], self.service.http[way.over]
        if way.is_by_hand:
            ports = {"port": self.address, "upstream": self._app_port}
            limit = _TIGHT if is_tight else _WIDE
            return by_hand.documents(way, grpc=grpc, http=http, limit=limit, **ports)
        settings = GatewaySettings(
            listen=(Address(_HOST, self.address),),
            upstream=(Upstream(_HOST, self._app_port),),
            decide=way.decide or "exact",
            envoy_threads=1,
            **self._settings,
        )
        places = Places(str(self.directory), (grpc,), str(self.directory / "admin"))
        return documents(read_policy(text if way.decide else NO_RULES), settings, places)

    def _write(self, name: str, document: dict[str, Any]) -> None:
        place = self.directory / name
        place.parent.mkdir(exist_ok=True)
        beside = place.with_name(f"{place.name}.new")
        beside.write_text(json.dumps(document), encoding="utf-8")
        beside.rename(place)


@contextmanager
def running(ways: Sequence[Way], *flags: str) -> Iterator[tuple[dict[Way, Gateway], list[Server]]]:
    """A gateway for each of *ways*, that was seen to limit, and all servers.

    *flags* are those of the services.
    """
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        app = AppServer(root / "app")
        stack.enter_context(app)
        services: dict[str, DecisionService] = {}
        gateways: dict[Way, Gateway] = {}
        for name in {way.service for way in ways}:
            text = policy(name, SOON_REACHED)
            services[name] = DecisionService(root / f"s{len(services)}", text, *flags)
            stack.enter_context(services[name])
        for way in ways:
            place = root / f"g{len(gateways)}"
            gateways[way] = Gateway(place, way, app.address, services[way.service])
            stack.enter_context(gateways[way])
            gateways[way].must_limit()
        for name, service in services.items():
            service.follow(policy(name))
        for gateway in gateways.values():
            gateway.must_pass()
        yield gateways, [app, *services.values(), *gateways.values()]


def _status(port: int, path: str = "/") -> int:
    try:
        return httpx.get(f"http://{_HOST}:{port}{path}", trust_env=False).status_code
    except httpx.TransportError:
        return 0
