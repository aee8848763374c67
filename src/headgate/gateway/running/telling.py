"""Where everything is, told once it is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate import __version__
from headgate.gateway.demo import dashboard_link, introduction
from headgate.gateway.running.logs import FIELDS, LOG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.gateway.running.run_directory import RunDirectory
    from headgate.gateway.running.terms import Terms
    from headgate.settings import Address

TOKEN_FILE: Final = "admin_token.secret"  # noqa: S105 - the name of a file


def tell_start(
    terms: Terms, directory: RunDirectory, started: Mapping[str, Any], *, pids: Mapping[str, object]
) -> None:
    """Say what listens where; *started* is what the service has said of itself."""
    fields = {**_fields(terms, directory, started), **pids}
    title = f"headgate {__version__} is up"
    if terms.is_json:
        LOG.info(title, extra={FIELDS: fields})
    elif terms.is_demo:
        shown = introduction(
            gateway=url_of(terms.gateway.listen[0], is_tls=_is_tls(terms)),
            service=service_url(terms),
            token=terms.made_token,
            rules=terms.rules or "",
        )
        print(shown, flush=True)
    else:
        told = "\n  ".join([title, *_lines(terms, directory, started)])
        LOG.info("%s", told, extra={FIELDS: fields})


def url_of(address: Address, *, is_tls: bool) -> str:
    """Where a client on this machine finds *address*."""
    if address.is_unix:
        return str(address)
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - it is only shown
    host = everywhere.get(
        address.host, f"[{address.host}]" if ":" in address.host else address.host
    )
    return f"{'https' if is_tls else 'http'}://{host}:{address.port}"


def service_url(terms: Terms) -> str:
    """Where the service is, for a browser if it can be; "" if it has no HTTP."""
    is_tls = bool(terms.service.config.get("http_tls_cert"))
    first = min(terms.service.http, key=lambda address: address.is_unix, default=None)
    return "" if first is None else url_of(first, is_tls=is_tls)


def _is_tls(terms: Terms) -> bool:
    return terms.gateway.listen_tls_cert is not None


def _fields(terms: Terms, directory: RunDirectory, started: Mapping[str, Any]) -> dict[str, object]:
    is_tls = _is_tls(terms)
    return {
        "event": "up",
        "version": __version__,
        "gateway": [url_of(one, is_tls=is_tls) for one in terms.gateway.listen],
        "service": service_url(terms) or None,
        "upstreams": [str(one) for one in terms.gateway.upstream],
        "rules": started.get("rules"),
        "revision": started.get("revision"),
        "rule_count": started.get("rule_count"),
        "store": started.get("store"),
        "admin_token_file": str(directory.place(TOKEN_FILE)) if terms.made_token else None,
        "run_dir": str(directory.path),
    }


def _lines(terms: Terms, directory: RunDirectory, started: Mapping[str, Any]) -> list[str]:
    is_tls = _is_tls(terms)
    lines = [f"gateway: {url_of(one, is_tls=is_tls)}" for one in terms.gateway.listen]
    lines += [f"upstream: {one}" for one in terms.gateway.upstream]
    if terms.service.http:
        token = terms.made_token if terms.is_terminal else None
        lines.append(f"service and dashboard: {dashboard_link(service_url(terms), token)}")
    count = started.get("rule_count")
    counted = "1 rule" if count == 1 else f"{count} rules"
    lines.append(f"rules: {started.get('rules')}, revision {started.get('revision')}, {counted}")
    lines.append(f"counters: {started.get('store')}")
    lines += [f"not ready: {reason}" for reason in started.get("not_ready") or ()]
    if terms.made_token and terms.is_terminal:
        lines.append(f"admin token, made for this run: {terms.made_token}")
    elif terms.made_token:
        lines.append(f"admin token, made for this run: in {directory.place(TOKEN_FILE)}")
    lines.append(f"files: {directory.path}")
    return lines
