"""Real servers for tests: started on free loopback ports, and gone when the tests are.

    with RedisServer(password="...") as server:
        server.url, server.cli("info", "server")

Each of them is a context manager. What is here does not use the client library that the tests
try out: it talks to the servers by itself, or with `redis-cli`. `executable` is another binary to
run in place of `redis-server`, such as `valkey_binary()`; HEADGATE_REDIS_SERVER names one for all
of them.

A `url` has a deadline that a busy machine keeps; `with_options(url, timeout=0.05)` is one with
another, `bare_url` one without options, for other clients and for whoever adds its own.
"""

from tests.support.servers.certificates import Certificates
from tests.support.servers.cluster import ClusterSetup
from tests.support.servers.instance import is_installed
from tests.support.servers.migration import Migration
from tests.support.servers.ports import free_port, release_port
from tests.support.servers.process import ServerError
from tests.support.servers.proxy import SilentProxy
from tests.support.servers.sentinel import SentinelSetup
from tests.support.servers.server import RedisServer, User, knows_tls
from tests.support.servers.urls import PATIENCE, with_options
from tests.support.servers.valkey import valkey_binary
from tests.support.servers.waiting import until, wait_until

__all__ = [
    "PATIENCE",
    "Certificates",
    "ClusterSetup",
    "Migration",
    "RedisServer",
    "SentinelSetup",
    "ServerError",
    "SilentProxy",
    "User",
    "free_port",
    "is_installed",
    "knows_tls",
    "release_port",
    "until",
    "valkey_binary",
    "wait_until",
    "with_options",
]
