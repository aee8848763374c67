"""The messages of etcd's API, version 3, as far as they are used here.

The numbers are those of etcd's `rpc.proto` and `kv.proto`. Enumerations are written down as the
integers that they are on the wire.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from headgate.protos import BOOL, BYTES, INT32, INT64, STRING, UINT64, Field, File, Message, define

_KV: Final = "mvccpb.KeyValue"
_PB: Final = "etcdserverpb"


def _header() -> Field:
    return Field(1, "header", f"{_PB}.ResponseHeader")


_VALUES: Final = File(
    "kv.proto",
    "mvccpb",
    (
        Message(
            "KeyValue",
            (
                Field(1, "key", BYTES),
                Field(2, "create_revision", INT64),
                Field(3, "mod_revision", INT64),
                Field(5, "value", BYTES),
            ),
        ),
        Message("Event", (Field(1, "type", INT32), Field(2, "kv", _KV))),
    ),
)
_RANGES: Final = (
    Message(
        "ResponseHeader",
        (
            Field(1, "cluster_id", UINT64),
            Field(2, "member_id", UINT64),
            Field(3, "revision", INT64),
        ),
    ),
    Message(
        "RangeRequest",
        (
            Field(1, "key", BYTES),
            Field(2, "range_end", BYTES),
            Field(3, "limit", INT64),
            Field(5, "sort_order", INT32),
        ),
    ),
    Message("RangeResponse", (_header(), Field(2, "kvs", _KV, many=True))),
)
_TRANSACTIONS: Final = (
    Message("PutRequest", (Field(1, "key", BYTES), Field(2, "value", BYTES))),
    Message("DeleteRangeRequest", (Field(1, "key", BYTES), Field(2, "range_end", BYTES))),
    Message(
        "RequestOp",
        (
            Field(1, "request_range", f"{_PB}.RangeRequest", one_of="request"),
            Field(2, "request_put", f"{_PB}.PutRequest", one_of="request"),
            Field(3, "request_delete_range", f"{_PB}.DeleteRangeRequest", one_of="request"),
        ),
    ),
    Message("ResponseOp", (Field(1, "response_range", f"{_PB}.RangeResponse", one_of="response"),)),
    Message(
        "Compare",
        (
            Field(1, "result", INT32),
            Field(2, "target", INT32),
            Field(3, "key", BYTES),
            Field(6, "mod_revision", INT64, one_of="target_union"),
        ),
    ),
    Message(
        "TxnRequest",
        (
            Field(1, "compare", f"{_PB}.Compare", many=True),
            Field(2, "success", f"{_PB}.RequestOp", many=True),
            Field(3, "failure", f"{_PB}.RequestOp", many=True),
        ),
    ),
    Message(
        "TxnResponse",
        (
            _header(),
            Field(2, "succeeded", BOOL),
            Field(3, "responses", f"{_PB}.ResponseOp", many=True),
        ),
    ),
)
_WATCHES: Final = (
    Message(
        "WatchCreateRequest",
        (
            Field(1, "key", BYTES),
            Field(3, "start_revision", INT64),
            Field(4, "progress_notify", BOOL),
            Field(8, "fragment", BOOL),
        ),
    ),
    Message("WatchProgressRequest"),
    Message(
        "WatchRequest",
        (
            Field(1, "create_request", f"{_PB}.WatchCreateRequest", one_of="request_union"),
            Field(3, "progress_request", f"{_PB}.WatchProgressRequest", one_of="request_union"),
        ),
    ),
    Message(
        "WatchResponse",
        (
            _header(),
            Field(3, "created", BOOL),
            Field(4, "canceled", BOOL),
            Field(5, "compact_revision", INT64),
            Field(6, "cancel_reason", STRING),
            Field(11, "events", "mvccpb.Event", many=True),
        ),
    ),
)
_LOGINS: Final = (
    Message("AuthenticateRequest", (Field(1, "name", STRING), Field(2, "password", STRING))),
    Message("AuthenticateResponse", (_header(), Field(2, "token", STRING))),
)
_SERVICE: Final = File(
    "rpc.proto", _PB, (*_RANGES, *_TRANSACTIONS, *_WATCHES, *_LOGINS), needs=("kv.proto",)
)
_MESSAGES: Final = define(_VALUES, _SERVICE)

RangeRequest: Final = _MESSAGES[f"{_PB}.RangeRequest"]
TxnRequest: Final = _MESSAGES[f"{_PB}.TxnRequest"]
WatchRequest: Final = _MESSAGES[f"{_PB}.WatchRequest"]
AuthenticateRequest: Final = _MESSAGES[f"{_PB}.AuthenticateRequest"]
DESCENDING: Final = 2
"""RangeRequest.SortOrder: by key, the highest first."""

MOD: Final = 2
"""Compare.CompareTarget: the revision of etcd's that changed the key last, 0 if there is none."""

EQUAL: Final = 0
"""Compare.CompareResult."""

DELETE: Final = 1
"""Event.EventType; 0 is PUT."""


class Method(NamedTuple):
    """A method of etcd's: its path, and the names of what goes in and out."""

    path: str
    request: type[Any]
    response: type[Any]


def _method(service: str, name: str) -> Method:
    request, response = (_MESSAGES[f"{_PB}.{name}{end}"] for end in ("Request", "Response"))
    return Method(f"/{_PB}.{service}/{name}", request, response)


RANGE: Final = _method("KV", "Range")
TXN: Final = _method("KV", "Txn")
WATCH: Final = _method("Watch", "Watch")
AUTHENTICATE: Final = _method("Auth", "Authenticate")
