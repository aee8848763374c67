"""The requests that are sent to etcd, made without I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.control.etcd.messages import DESCENDING, EQUAL, MOD, RangeRequest, TxnRequest

if TYPE_CHECKING:
    from headgate.control.etcd.layout import Layout


def one(key: bytes) -> Any:
    """What *key* has."""
    return RangeRequest(key=key)


def newest(layout: Layout, *, before: int | None, most: int) -> Any:
    """At most *most* revisions below the number *before*, the newest first."""
    end = layout.end if before is None else layout.at(max(before, 0))
    return RangeRequest(key=layout.oldest, range_end=end, limit=most, sort_order=DESCENDING)


def replacement(layout: Layout, number: int, value: bytes, *, seen: int, kept: int) -> Any:
    """Make *value* the revision *number* and the newest, if the newest is still the one *seen*.

    *seen* is etcd's revision that wrote the newest, 0 if there is none: never the same for two
    writes. The oldest are removed so that *kept* stay. If the newest is another, the answer is what
    is there as the revision *number*.
    """
    request = TxnRequest()
    request.compare.add(result=EQUAL, target=MOD, key=layout.head, mod_revision=seen)
    for key in (layout.head, layout.at(number)):
        put = request.success.add().request_put
        put.key, put.value = key, value
    if number > kept:
        old = request.success.add().request_delete_range
        old.key, old.range_end = layout.oldest, layout.at(number - kept + 1)
    request.failure.add().request_range.key = layout.at(number)
    return request


def inspection(layout: Layout, number: int) -> Any:
    """The newest, and what is there as the revision *number*, at the same moment."""
    request = TxnRequest()
    request.success.add().request_range.key = layout.head
    request.success.add().request_range.key = layout.at(number)
    return request
