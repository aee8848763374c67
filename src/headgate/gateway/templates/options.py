"""The values of a printed configuration, checked so that none can break out of its place.

The five syntaxes quote differently, and some not at all. So a host, a server name or the path of a
socket may have only characters without a meaning in any of them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.resources import files
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
"""The body of a response while the service cannot be reached, as the service itself writes it."""


@dataclass(frozen=True, slots=True)
class Report:
    """The usage reported to *rule* at the end: a *header* of the response, or its bytes."""

    rule: str
    header: str | None = None

    def __post_init__(self) -> None:
        if not _PLAIN.fullmatch(self.rule):
            raise OptionError(f"{self.rule!r} is not the id of a rule")
        if self.header is not None and not _PLAIN.fullmatch(self.header):
            expected = "expected only letters, digits and . _ -"
            raise OptionError(f"the header {self.header!r} cannot be used in a format; {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOptions:
    """The values of a configuration. Raises `OptionError` for a value that cannot be used.

    *timeout* is in seconds. *server_name* is None for every name. *headers* are those that rules
    read, in lower case, or None if the rules are not known. *reports* are for rules whose costs are
    known afterwards. *longest_delay* is the longest time in seconds that rules delay a request.
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
            expected = f"expected {_LEAST_TIMEOUT} to {_LARGEST_TIMEOUT:g} seconds"
            raise OptionError(f"timeout: {self.timeout} is out of range; {expected}")

    @property
    def is_open(self) -> bool:
        """True if requests are allowed while the service does not answer."""
        return self.on_failure == "open"

    @property
    def timeout_ms(self) -> int:
        """The time to wait for a decision, in whole milliseconds."""
        return round(self.timeout * 1000)

    @property
    def answer_timeout_ms(self) -> int:
        """The time to wait for an answer that a queue may delay."""
        return self.timeout_ms + ceil(self.longest_delay * 1000)

    @property
    def sent_headers(self) -> tuple[str, ...]:
        """The headers that the service needs: those of the rules, or the default ones."""
        return usual_headers() if self.headers is None else self.headers

    @property
    def unreported(self) -> str:
        """A comment for gateways that cannot report usage; "" if no rule needs it."""
        rules = ", ".join(one.rule for one in self.reports)
        text = "# This gateway does not report usage: these rules charge only their initial cost:"
        return f"{text}\n#   {rules}" if rules else ""


def template_options(
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
) -> TemplateOptions:
    """Read the options of the command. Raises `OptionError`."""
    return TemplateOptions(
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
    """The headers that *policy* reads, sorted; that of proxies only if it trusts some."""
    found = headers_of_interest(policy)
    if not policy.identity.address.trusted_proxies:
        found -= {policy.identity.address.header.lower()}
    return tuple(sorted(found))


def reports_of(policy: Policy) -> tuple[Report, ...]:
    """The usage that rules of *policy* need at the end of a request."""
    rules = [rule for rule in policy.rules if rule.mode != "off"]
    return tuple(
        Report(rule.id, rule.cost.after.header) for rule in rules if rule.cost.after is not None
    )


def longest_delay_of(policy: Policy) -> float:
    """The longest time in seconds that rules of *policy* delay a request."""
    enforced = [rule for rule in policy.rules if rule.mode == "enforce"]
    limits = [one for rule in enforced for row in rule.limits.values() for one in row]
    delays = [one.patience_ns for one in limits if isinstance(one, LeakyQueue)]
    return max(delays, default=0) / SECOND


def usual_headers() -> tuple[str, ...]:
    """The headers that identify callers by default."""
    return tuple(source.header for source in DEFAULT_SOURCES.values() if source.header)


def _server(what: str, text: str) -> Upstream:
    # Python's reader of URLs leaves out a tab or a line feed, and would take a=b for two things.
    if text.isascii() and text.isprintable() and not any(mark in text for mark in " =@"):
        try:
            return parse_upstream(text)
        except OptionError:
            pass
    shown = "the value" if "@" in text else repr(text)  # it may have a password in it
    raise OptionError(f"{what}: {shown} is not the URL of a server; expected {_URL}")


def _check_place(what: str, host: str, path: str) -> None:
    """Raise for a host or a path that some syntax would misread."""
    if path and not _PATH.fullmatch(path):
        expected = "expected only letters, digits and / . _ + -"
        raise OptionError(f"{what}: the path {path!r} has a character with a meaning; {expected}")
    if not path and not _is_host(host):
        raise OptionError(f"{what}: {host!r} is not a host; expected a name or an address")


def _check_server_name(name: str | None) -> None:
    if name is not None and not _is_name(name.removeprefix("*.")):
        expected = "expected a name such as www.example.com or *.example.com (xn--... for others)"
        raise OptionError(f"server name: {name!r} is not a host name; {expected}")


def _is_host(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return _is_name(text)
    return "%" not in text  # a zone: not every gateway takes one


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None


# A place for a value is `<<name>>`, which no syntax uses. A place alone on its line takes several
# lines, each indented like the place; without a value the line is removed.


_PLACE: Final = re.compile(r"^([ \t]*)<<(\w+)>>\n|<<(\w+)>>", re.MULTILINE)


def filled(name: str, values: Mapping[str, str]) -> str:
    """The file *name* with *values* at their places."""
    template = files("headgate.gateway.templates").joinpath("files", name).read_text("utf-8")
    return filled_text(template, values)


def filled_text(template: str, values: Mapping[str, str]) -> str:
    """*template* with *values* at their places. Places inside values are left alone.

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
    """*text* between double quotes, as in YAML and JSON."""
    return json.dumps(text)
