"""What somebody wants a configuration for, checked: nothing in it can break out of a text.

The five syntaxes quote differently, and some not at all: a host, the name of a server or the path
of a socket has only characters that mean nothing in any of them. What has others is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from ipaddress import ip_address
from math import ceil
from typing import TYPE_CHECKING, Final, Literal

from headgate.config import Address, parse_address
from headgate.config.gateway import Upstream, parse_upstream
from headgate.errors import OptionError
from headgate.limits import LeakyQueue
from headgate.policy.model import DEFAULT_SOURCES
from headgate.policy.plan_cache import headers_of_interest
from headgate.responses.bodies import OUTAGE
from headgate.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.policy.model import Policy


OnFailure = Literal["open", "closed"]

_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_PATH: Final = re.compile(r"/[A-Za-z0-9/._+-]+")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]{1,256}")
_URL: Final = "http://host:port, https://host or unix:/path"
_LONGEST_NAME: Final = 253
_LEAST_TIMEOUT, _LARGEST_TIMEOUT = 0.001, 60.0

SERVICE: Final = Upstream(host="127.0.0.1", port=8090)
GRPC: Final = Address("127.0.0.1", 8091)
GRPC_IN_KUBERNETES: Final = "headgate-grpc.default.svc.cluster.local:8091"
"""Where `deploy/kubernetes` has the service."""

UPSTREAM: Final = Upstream(host="127.0.0.1", port=9000)
LISTEN: Final = Address("127.0.0.1", 8080)
TIMEOUT: Final = 0.25

UNAVAILABLE: Final = json.dumps({"error": OUTAGE[0], "message": f"{OUTAGE[2]}. Try again later."})
"""What is said while nobody can decide: the body of Headgate's own refusals, where it can be."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a rule is told when a request is over: a *header* of the response, or its bytes."""

    rule: str
    header: str | None = None

    def __post_init__(self) -> None:
        if not _PLAIN.fullmatch(self.rule):
            raise OptionError(f"{self.rule!r} is not the id of a rule")
        if self.header is not None and not _PLAIN.fullmatch(self.header):
            told = "expected letters, digits and . _ - only"
            raise OptionError(f"the header {self.header!r} cannot be named in a format; {told}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a gateway is to do. *timeout* is in seconds. Raises `OptionError` if that cannot be.

    *server_name* is None for every name; *headers* are those that rules look at, in lower case, and
    None if the rules are not known. *reports* are for rules whose costs are known afterwards.
    *longest_delay* is for how many seconds rules may delay a request: the answer comes after that.
    """

    service: Upstream = SERVICE
    grpc: Address = GRPC
    upstream: Upstream = UPSTREAM
    listen: Address = LISTEN
    server_name: str | None = None
    headers: tuple[str, ...] | None = None
    reports: tuple[Report, ...] = ()
    on_failure: OnFailure = "open"
    timeout: float = TIMEOUT
    longest_delay: float = 0.0
    is_full: bool = False

    def __post_init__(self) -> None:
        for what, server in (("service", self.service), ("upstream", self.upstream)):
            if server.for_host or server.for_path != "/":
                raise OptionError(f"{what}: {server} is for some requests only; expected one URL")
            if server.is_http2:
                raise OptionError(f"{what}: {server} is for gRPC; expected {_URL}")
            _check_place(what, server.host, server.path)
        _check_place("grpc", self.grpc.host, self.grpc.path)
        _check_place("listen", self.listen.host, self.listen.path)
        if self.listen.is_unix or not self.listen.port or not (self.grpc.port or self.grpc.path):
            raise OptionError("listen and grpc need a port; expected HOST:PORT")
        _check_server_name(self.server_name)
        for name in self.headers or ():
            if not _HEADER.fullmatch(name):
                raise OptionError(f"{name!r} is not the name of a header")
        if not _LEAST_TIMEOUT <= self.timeout <= _LARGEST_TIMEOUT:
            told = f"expected {_LEAST_TIMEOUT} to {_LARGEST_TIMEOUT:g} seconds"
            raise OptionError(f"timeout: {self.timeout} is no time to wait; {told}")

    @property
    def is_open(self) -> bool:
        """Whether requests pass while the service does not answer."""
        return self.on_failure == "open"

    @property
    def timeout_ms(self) -> int:
        """How long to wait for a decision, in whole milliseconds."""
        return round(self.timeout * 1000)

    @property
    def answer_timeout_ms(self) -> int:
        """How long to wait for an answer that is held back until a request has its turn."""
        return self.timeout_ms + ceil(self.longest_delay * 1000)

    @property
    def told_headers(self) -> tuple[str, ...]:
        """The headers that the service is to see: those of the rules, or else the usual ones."""
        return usual_headers() if self.headers is None else self.headers

    @property
    def unreported(self) -> str:
        """A comment for those who report nothing when a request is over; "" if no rule needs it."""
        rules = ", ".join(one.rule for one in self.reports)
        told = "# What requests have cost is told to nobody: these rules charge only the entry:"
        return f"{told}\n#   {rules}" if rules else ""


def make_wanted(
    *,
    service: str | None = None,
    grpc: str | None = None,
    upstream: str | None = None,
    listen: str | None = None,
    server_name: str | None = None,
    policy: Policy | None = None,
    on_failure: OnFailure = "open",
    timeout: float = TIMEOUT,
    is_full: bool = False,
) -> Wanted:
    """What is wanted, from texts as the command has them. Raises `OptionError`."""
    return Wanted(
        service=SERVICE if service is None else _server("service", service),
        grpc=GRPC if grpc is None else parse_address(grpc),
        upstream=UPSTREAM if upstream is None else _server("upstream", upstream),
        listen=LISTEN if listen is None else parse_address(listen),
        server_name=server_name,
        headers=None if policy is None else headers_of(policy),
        reports=() if policy is None else reports_of(policy),
        on_failure=on_failure,
        timeout=timeout,
        longest_delay=0.0 if policy is None else longest_delay_of(policy),
        is_full=is_full,
    )


def headers_of(policy: Policy) -> tuple[str, ...]:
    """The headers that *policy* looks at, in order; that of proxies only if it believes some."""
    found = headers_of_interest(policy)
    if not policy.identity.address.trusted_proxies:
        found -= {policy.identity.address.header.lower()}
    return tuple(sorted(found))


def reports_of(policy: Policy) -> tuple[Report, ...]:
    """What the rules of *policy* want to be told when a request is over."""
    rules = [rule for rule in policy.rules if rule.mode != "off"]
    return tuple(
        Report(rule.id, rule.cost.after.header) for rule in rules if rule.cost.after is not None
    )


def longest_delay_of(policy: Policy) -> float:
    """For how many seconds rules of *policy* may delay a request."""
    enforced = [rule for rule in policy.rules if rule.mode == "enforce"]
    limits = [one for rule in enforced for row in rule.limits.values() for one in row]
    delays = [one.patience_ns for one in limits if isinstance(one, LeakyQueue)]
    return max(delays, default=0) / SECOND


def usual_headers() -> tuple[str, ...]:
    """The headers that rules look at which do not say otherwise who is asking."""
    return tuple(source.header for source in DEFAULT_SOURCES.values() if source.header)


def _server(what: str, text: str) -> Upstream:
    # Python's reader of URLs leaves out a tab or a line feed, and would take a=b for two things.
    if text.isascii() and text.isprintable() and not any(mark in text for mark in " =@"):
        try:
            return parse_upstream(text)
        except OptionError:
            pass
    shown = "what is given" if "@" in text else repr(text)  # it may have a password in it
    raise OptionError(f"{what}: {shown} is no URL of a server; expected {_URL}")


def _check_place(what: str, host: str, path: str) -> None:
    """Refuse a host or a path that some syntax would read otherwise."""
    if path and not _PATH.fullmatch(path):
        told = "expected letters, digits and / . _ + - only"
        raise OptionError(f"{what}: the path {path!r} cannot be written in every syntax; {told}")
    if not path and not _is_host(host):
        raise OptionError(f"{what}: {host!r} is no host; expected a name or an address")


def _check_server_name(name: str | None) -> None:
    if name is not None and not _is_name(name.removeprefix("*.")):
        told = "expected a name as www.example.com or *.example.com, others as xn--..."
        raise OptionError(f"server name: {name!r} is no name of a host; {told}")


def _is_host(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return _is_name(text)
    return "%" not in text  # a zone: not every gateway takes one


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None


# Texts with places in them, and what is put there.
#
# A place is `<<name>>`: nothing in the syntaxes that we write looks like that. A place alone on its
# line takes several lines, each as far to the right as it stands; with nothing to put there, the
# line goes.


_PLACE: Final = re.compile(r"^([ \t]*)<<(\w+)>>\n|<<(\w+)>>", re.MULTILINE)


def filled(template: str, values: Mapping[str, str]) -> str:
    """*template* with *values* at their places. What is put in is not looked at again.

    Raises `KeyError` for a place that has no value.
    """

    def put(found: re.Match[str]) -> str:
        margin, block, word = found.groups()
        if word is not None:
            return values[word]
        lines = values[block].splitlines()
        return "".join(f"{margin}{line}\n" if line else "\n" for line in lines)

    return _PLACE.sub(put, template)


def quoted(text: str) -> str:
    """*text* as YAML and JSON write it between double quotes."""
    return json.dumps(text)
