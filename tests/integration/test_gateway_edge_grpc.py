"""gRPC calls that the gateway denies: their status, and when to retry."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.support.decision_service import serving
from tests.support.envoy_edge import HOST, Gateway
from tests.support.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_RULES = """\
version: 1
rules:
  - id: calls
    key_by: ip
    limit: 1/hour
    on_store_failure: fail_closed
    decide: {}
"""


@contextmanager
def _upstream() -> Iterator[str]:
    handler: Any = grpc.unary_unary_rpc_method_handler(lambda request, _context: request)
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", {"C": handler}),))
    port = server.add_insecure_port(f"{HOST}:0")
    server.start()
    try:
        yield f"grpc://{HOST}:{port}"
    finally:
        server.stop(None).wait()


@pytest.mark.parametrize("decide", ["exact", "local", "quota"])
def test_a_denied_call_ends_with_resource_exhausted(tmp_path: Path, decide: str) -> None:
    rules = _RULES.format(decide)
    with (
        serving(tmp_path, rules=rules, grpc=1) as service,
        _upstream() as upstream,
        Gateway(
            tmp_path,
            rules,
            f"{HOST}:{service.grpc_port}",
            upstream=[upstream],
            decision_timeout=2.0,
        ) as gateway,
        grpc.insecure_channel(f"{HOST}:{gateway.port}") as channel,
    ):
        call: Any = channel.unary_unary("/a.B/C")

        denials: list[Any] = []

        def is_denied() -> bool:
            try:
                assert call(b"hello", timeout=60) == b"hello"
            except grpc.RpcError as error:
                denials.append(error)
            return bool(denials)

        wait_until(is_denied, "a call is denied", within=30.0)
        (error,) = denials
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert re.fullmatch(r"Too many requests\. Try again in \d+ s\.", error.details())
    metadata = dict([*error.initial_metadata(), *error.trailing_metadata()])
    assert 3_000_000 < int(metadata["grpc-retry-pushback-ms"]) <= 3_600_000
