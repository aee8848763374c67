"""Calls of Envoy's rate limit service for a corpus, and replies as a golden file has them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import grpc
from envoy.service.ratelimit.v3 import rls_pb2  # type: ignore[import-untyped]  # it has no types
from google.protobuf import json_format

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.golden.transcript import Transcript
    from tests.support.service_process import ServiceProcess

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
_IS_NEGATIVE_HITS = b"\x20\x01"
"""The field of a descriptor that is younger than the definitions of `xds-protos`."""
_RAW_BODY, _METADATA = 5, 6


@dataclass(frozen=True)
class Wait:
    """Not a call: so many seconds pass."""

    seconds: float


@dataclass(frozen=True)
class Repeat:
    """The same call several times."""

    message: bytes
    times: int


Step = bytes | Repeat | Wait


def descriptor(
    *entries: str | tuple[str, str],
    hits: int | None = None,
    limit: tuple[int, int] | None = None,
    is_refund: bool = False,
) -> Any:
    """A descriptor with *entries* such as `user=ada`, and a *limit* of requests per unit."""
    made = rls_pb2.RateLimitRequest().descriptors.add()
    for entry in entries:
        key, value = entry if isinstance(entry, tuple) else entry.split("=", 1)
        made.entries.add(key=key, value=value)
    if hits is not None:
        made.hits_addend.value = hits
    if limit is not None:
        made.limit.requests_per_unit, made.limit.unit = limit
    if is_refund:
        made.MergeFromString(_IS_NEGATIVE_HITS)
    return made


def call(domain: str, *descriptors: Any, hits: int = 0) -> bytes:
    """The bytes of a call."""
    made = rls_pb2.RateLimitRequest(domain=domain, descriptors=descriptors, hits_addend=hits)
    written: bytes = made.SerializeToString(deterministic=True)
    return written


def record(service: ServiceProcess, corpus: Mapping[str, Step], transcript: Transcript) -> None:
    """Make all calls of *corpus*, one after the other."""
    for name, step in corpus.items():
        if isinstance(step, Wait):
            service.advance(step.seconds)
        elif isinstance(step, Repeat):
            for number in range(1, step.times + 1):
                _record(service, f"{name} #{number}", step.message, transcript)
        else:
            _record(service, name, step, transcript)


def _record(service: ServiceProcess, name: str, message: bytes, transcript: Transcript) -> None:
    try:
        reply = service.call(METHOD, message)
    except grpc.RpcError as error:
        record_error(name, error, transcript)
        return
    wire: dict[str, object] = {}
    kept: list[str] = []
    for number, field, content in _fields(reply):
        if number == _RAW_BODY:
            wire["raw_body"] = transcript.data(name, json.loads(content), "raw_body")
            kept.append(f"{field[0]:02x} raw_body")
        elif number == _METADATA:  # its maps have no order
            decoded = rls_pb2.RateLimitResponse.FromString(field)
            metadata = json_format.MessageToDict(decoded.dynamic_metadata)
            wire["dynamic_metadata"] = transcript.data(name, metadata, "dynamic_metadata")
            kept.append(f"{field[0]:02x} dynamic_metadata")
        else:
            kept.append(field.hex())
    transcript.add(name, {"bytes": _in_runs(kept), "reads": _in_runs(_reading(reply)), **wire})


def record_error(name: str, error: grpc.RpcError, transcript: Transcript) -> None:
    """Record the status of a call that failed."""
    assert isinstance(error, grpc.Call)
    transcript.add(name, {"status": error.code().name})
    transcript.add_text(name, "details", error.details() or "")


def _reading(reply: bytes) -> list[str]:
    """The reply in short, for who reads the recording."""
    found = rls_pb2.RateLimitResponse.FromString(reply)
    code = rls_pb2.RateLimitResponse.Code.Name
    unit = rls_pb2.RateLimitResponse.RateLimit.Unit.Name
    lines = [code(found.overall_code)]
    for one in found.statuses:
        line = code(one.code)
        if one.HasField("current_limit"):
            limit = one.current_limit
            line += f" {limit.name!r} {limit.requests_per_unit}/{unit(limit.unit)}"
        if one.limit_remaining:
            line += f" remaining {one.limit_remaining}"
        if one.HasField("duration_until_reset"):
            line += f" reset {one.duration_until_reset.seconds}"
        lines.append(line)
    lines += [f"{one.key}: {one.value}" for one in found.response_headers_to_add]
    return lines


def _in_runs(lines: list[str]) -> list[str]:
    """*lines*, those that come several times in a row once, with their number."""
    runs = [(line, len(list(several))) for line, several in groupby(lines)]
    return [line if count == 1 else f"{line} x {count}" for line, count in runs]


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The fields of *message*: number, all its bytes, and its content if it has a length."""
    place = 0
    while place < len(message):
        start = place
        tag, place = _varint(message, place)
        size = 0
        if tag & 7 == 0:
            _, place = _varint(message, place)
        else:
            assert tag & 7 == 2, f"field {tag >> 3} has the wire type {tag & 7}"
            size, place = _varint(message, place)
        yield tag >> 3, message[start : place + size], message[place : place + size]
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        octet = message[place]
        value |= (octet & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if not octet & 0x80:
            return value, place
