"""`headgate rules explain`: explain the decision on a request.

Explain the decision of a policy on a request: the rules that match and why others do not, the keys
of the counters, the rest of each limit, and the response.

It changes no counters. They are empty, unless you name a store with --store. Secrets are shown
hashed, the same as in keys; if your service hashes them with a salt, set HEADGATE_SALT to it, or
you will see other counters.

examples:
  headgate rules explain rules.yaml 'POST /login' --ip 1.2.3.4
  headgate rules explain rules.yaml 'POST /login' --ip 1.2.3.4 --repeat 6
  headgate rules explain rules.yaml /api/v1/users -H 'x-api-key: k' --tier paid
  headgate rules explain rules.yaml 'GET https://example.com/api' --store redis://localhost:6379/0

exit status: 0 allowed, 1 denied, 2 wrong usage or an unreadable policy
"""

from __future__ import annotations

import os
import re
import time
from argparse import ArgumentTypeError
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headgate.cli.command import (
    JSON,
    Command,
    ExitStatus,
    argument,
    flag,
    pair,
    repeated,
    whole_number,
)
from headgate.errors import OptionError

if TYPE_CHECKING:
    from argparse import Namespace

    from headgate.cli.rules.explanation import ExplainedRequest
    from headgate.engine.request import Request
    from headgate.policy.model import Policy, Source

_MOST_REPEATED: Final = 100_000
_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - of RFC 9110
_LINE: Final = re.compile(
    rf"(?:(?P<method>{_TOKEN})\s+)?(?P<target>(?:/|\*|[A-Za-z][A-Za-z0-9+.-]*://).*?)"
    r"(?:\s+HTTP/[0-9.]+)?",
    re.DOTALL,
)
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?P<host>[^/?#]*)(?P<path>[^?#]*)", re.DOTALL)
_named: Final = pair("=", "name=value")


def _cost(text: str) -> int:
    return 0 if text == "0" else whole_number(text)


def _times(text: str) -> int:
    number = whole_number(text)
    if number > _MOST_REPEATED:
        raise ArgumentTypeError(f"{number} is too many; at most {_MOST_REPEATED}")
    return number


_ARGUMENTS: Final = (
    argument("path", "PATH", "the policy: a file, a directory, - for stdin"),
    argument("request", "REQUEST", "'POST /login', '/login' (GET) or a URL"),
    repeated(
        "-H --header", "'NAME: VALUE'", "a header; may be repeated", type=pair(":", "'name: value'")
    ),
    repeated("--cookie", "NAME=VALUE", "a cookie; may be repeated", type=_named),
    repeated(
        "--attribute", "NAME=VALUE", "an attribute set by the app; may be repeated", type=_named
    ),
    argument("--ip", "ADDRESS", "the address of the peer (default 127.0.0.1)", default="127.0.0.1"),
    argument("--host", "NAME", "the host of the request"),
    argument("--tier", "NAME", "the tier of the caller"),
    argument("--cost", "N", "the cost, instead of the one by the rules", type=_cost),
    argument(
        "--repeat",
        "N",
        "explain the last of N such requests at the same time",
        type=_times,
        default=1,
    ),
    flag("--all", "list all rules that do not match"),
    JSON,
    argument(
        "--store",
        "URL",
        "read the counters in this store, without changing them",
        variable="HEADGATE_STORE",
        default="memory://",
    ),
    argument(
        "--namespace",
        "NAME",
        "the namespace of the counters in the store",
        variable="HEADGATE_NAMESPACE",
        default="headgate",
    ),
)


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.cli.policies import policy_at
    from headgate.cli.rules.explain_output import explain_json, explain_text

    is_live = not arguments.store.lower().startswith("memory:")
    explanation = _explained(policy_at(arguments.path), arguments, is_live=is_live)
    if arguments.json:
        print(explain_json(explanation))
    else:
        shows_all = arguments.all
        nth = arguments.repeat
        print(explain_text(explanation, nth=nth, is_live=is_live, shows_all=shows_all))
    return ExitStatus.DONE if explanation.verdict.allowed else ExitStatus.NO


COMMAND: Final = Command("rules explain", __doc__, _ARGUMENTS, _run)


def _explained(policy: Policy, arguments: Namespace, *, is_live: bool) -> ExplainedRequest:
    from headgate.cli.rules.explanation import explained
    from headgate.rule_engine import RuleEngine

    request = _request(arguments)
    if arguments.tier is not None:
        request = _with_tier(request, arguments.tier, policy.identity.sources["tier"])
    if is_live and arguments.repeat > 1:
        raise OptionError("--repeat would charge the counters in --store; add --store memory://")
    now_ns = time.time_ns()
    clock = None if is_live else lambda: now_ns
    salt = os.environ.get("HEADGATE_SALT", "").encode("utf-8", "surrogateescape")
    where = {"store": arguments.store, "namespace": arguments.namespace}
    with closing(RuleEngine(policy, salt=salt, clock=clock, **where)) as rules:
        for _ in range(arguments.repeat - 1):
            rules.check(request, cost=arguments.cost)
        return explained(rules.explain(request, cost=arguments.cost, raises=True), now_ns)


def _read_line(text: str) -> tuple[str, str, str]:
    """Method (default GET), path without the query, and host of the request line *text*.

    Raises `OptionError`.
    """
    found = _LINE.fullmatch(text.strip())
    if found is None:
        raise OptionError(
            f"the request is {text!r}; expected 'POST /login', '/login' or "
            "'GET https://example.com/login'"
        )
    method, target = (found["method"] or "GET").upper(), found["target"]
    url = _URL.match(target)
    if url is None:
        return method, target.partition("?")[0], ""
    return method, url["path"] or "/", url["host"].rpartition("@")[2]


def _request(arguments: Namespace) -> Request:
    """The request that *arguments* describe."""
    from headgate.engine.request import Request
    from headgate.policy.identity.address import read_address

    if read_address(arguments.ip) is None:
        raise OptionError(
            f"--ip is {arguments.ip!r}; expected an address such as 1.2.3.4 or 2001:db8::1"
        )
    method, path, line_host = _read_line(arguments.request)
    headers = list(arguments.header)
    if arguments.cookie:
        headers.append(("cookie", "; ".join(map("=".join, arguments.cookie))))
    sent = next((value for name, value in headers if name.lower() == "host"), "")
    host = arguments.host or sent or line_host
    if host and not sent:
        headers.append(("host", host))
    return Request(
        method=method,
        path=path,
        host=host,
        headers=tuple(headers),
        peer=arguments.ip,
        attributes=dict(arguments.attribute),
    )


def _with_tier(request: Request, tier: str, source: Source) -> Request:
    """*request* by a caller of *tier*, in the place where *source* looks for it."""
    if source.header is not None:
        others = [line for line in request.headers if line[0].lower() != source.header]
        return replace(request, headers=(*others, (source.header, tier)))
    if source.attribute is not None:
        return replace(request, attributes={**request.attributes, source.attribute: tier})
    if source.cookie is not None:
        return replace(request, headers=(("cookie", f"{source.cookie}={tier}"), *request.headers))
    raise OptionError(
        f"--tier does not apply: this policy looks the tier up by {source.lookup}; "
        "pass that instead"
    )
