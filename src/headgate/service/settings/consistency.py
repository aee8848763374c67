"""Settings that make sense each by itself, and not together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headgate.settings import Told

NO_RULES: Final = (
    "there are no rules; give --rules FILE (a file, a directory or etcd://...) or --envoy-config "
    "DIR. The shortest file is: {version: 1, rules: [{id: all, key_by: ip, limit: 100/minute}]}"
)

_FAR: Final = ("redis", "valkey", "unix")
A_FAR_ONE: Final = "Redis or Valkey"
_PAIRS: Final = (
    ("http_tls_cert", "http_tls_key", "http_tls_client_ca"),
    ("grpc_tls_cert", "grpc_tls_key", "grpc_tls_client_ca"),
)


def contradictions(values: Mapping[str, Any]) -> Iterator[Told]:
    """Everything that is wrong with *values*, all settings by name, as a whole."""
    if values["rules"] is None and values["envoy_config"] is None:
        yield "rules", NO_RULES
    if not values["http"] and not values["grpc"]:
        yield "http", "both http and grpc are off: nothing would be served"
    yield from _of_workers(values)
    yield from _of_regions(values)
    yield from _of_addresses(values)
    for cert, key, ca in _PAIRS:
        if (values[cert] is None) != (values[key] is None):
            given, missing = (cert, key) if values[key] is None else (key, cert)
            yield given, f"{missing} is missing; a certificate and its key go together"
        elif values[ca] is not None and values[cert] is None:
            yield ca, f"{cert} and {key} are missing; without TLS no client shows a certificate"
    if values["admin_certificates"] and values["http_tls_client_ca"] is None:
        yield "admin_certificates", "http_tls_client_ca is missing: who says they are genuine?"
    if values["rlqs_silence"] > values["rlqs_idle"]:
        yield "rlqs_silence", "expected no more than rlqs_idle: a bucket is abandoned before that"


def _of_workers(values: Mapping[str, Any]) -> Iterator[Told]:
    if values["workers"] == 1:
        return
    if str(values["store"]).lower().startswith("memory:"):
        told = f"{values['workers']} workers with memory:// would each count by themselves"
        yield "workers", f"{told}; give --store redis://..., or --workers 1"


def _of_regions(values: Mapping[str, Any]) -> Iterator[Told]:
    peers = values["region_peers"]
    if not peers:
        return
    if values["region"] is None:
        yield "region", "missing; with region_peers each node says which region it is in"
    if not _is_far(values["store"]):  # it may have a password in it: not shown
        yield "region_peers", f"a region's own store is {A_FAR_ONE}; give --store redis://..."
    names, stores = [], [_place(values["store"])]
    for peer in peers:
        if peer.name in names:
            yield "region_peers", f"the region {peer.name} is there twice"
        elif peer.name == values["region"]:
            yield "region_peers", f"{peer.name} is this region; expected the others only"
        elif not _is_far(peer.store):
            yield "region_peers", f"the store of {peer.name} is not {A_FAR_ONE}"
        elif _place(peer.store) in stores:
            told = f"the store of {peer.name} is another region's too; all would count twice"
            yield "region_peers", told
        names.append(peer.name)
        stores.append(_place(peer.store))


def _is_far(store: str) -> bool:
    return store.lower().startswith(_FAR)


def _place(store: str) -> str:
    """Where *store* is, without how it is asked."""
    return store.partition("?")[0].rstrip("/")


def _of_addresses(values: Mapping[str, Any]) -> Iterator[Told]:
    """Two listeners at one address, also those of the workers that have one each."""
    taken = {address for address in values["http"] if address.is_unix or address.port}
    is_each = values["grpc_ports"] == "each"
    for address in values["grpc"]:
        for number in range(values["workers"] if is_each else 1):
            if not address.is_unix and address.port + number > 65_535:
                yield "grpc", f"worker {number} would have port {address.port + number}"
                break
            own = address.nth(number)
            if own in taken:
                yield "grpc", f"{own} is taken by another listener of this service"
            if own.is_unix or own.port:
                taken.add(own)
