"""Loopback ports that nothing else is going to take.

They come from 10000-19999. That is below the ports the kernel gives to outgoing connections, so
none of those can take one between our look and the server's bind; and port + 10000, where the nodes
of a cluster talk to each other, is never itself a port that we give out. A socket in Linux's
abstract namespace marks each port as ours for as long as this process lives, so test runs at the
same time keep out of each other's way.
"""

from __future__ import annotations

import atexit
import random
import socket

HOST = "127.0.0.1"
BUS = 10_000
_FIRST, _LAST = 10_000, 19_999

_claims: dict[int, socket.socket] = {}


def free_port() -> int:
    """A port of 127.0.0.1 where nobody listens, nor on port + 10000: ours until released."""
    for port in random.sample(range(_FIRST, _LAST + 1), 1_000):
        if _claim(port):
            if _is_free(port) and _is_free(port + BUS):
                return port
            release_port(port)
    raise OSError(f"no free port found from {_FIRST} to {_LAST}")


def release_port(port: int) -> None:
    """Give back a port from `free_port`, so that it may be given out again."""
    if claim := _claims.pop(port, None):
        claim.close()


def _claim(port: int) -> bool:
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0headgate-tests-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims[port] = claim
    return True


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the servers do: a port whose last connections still linger is free all the same.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


@atexit.register
def _release_all() -> None:
    for port in list(_claims):
        release_port(port)
