"""`headgate gateway config`: a configuration for an existing gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.cli.command import Command, ExitStatus, add_json
from headgate.errors import OptionError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from headgate.gateway.templates import Gateway
    from headgate.policy.model import Policy

_DESCRIPTION: Final = """\
Configure a gateway that you run already. (`headgate up` runs one for you.)"""
_EXAMPLES: Final = """\
examples:
  headgate gateway config nginx
  headgate gateway config envoy --rules rules.yaml --output envoy.yaml

See also headgate gateway config --help."""
_CONFIG: Final = """\
Print a working configuration for your own gateway, which asks `headgate serve` about every request:
nginx, caddy, traefik, envoy or istio. Comments explain each part.

Features of each gateway, and its behaviour without the service: docs/your-gateway.md."""
_CONFIG_EXAMPLES: Final = """\
examples:
  headgate gateway config nginx --upstream http://127.0.0.1:9000 > /etc/nginx/conf.d/headgate.conf
  headgate gateway config nginx --full --on-failure closed --output nginx.conf
  headgate gateway config caddy --service unix:/run/headgate/http.sock --server-name example.org
  headgate gateway config traefik --rules rules.yaml --output dynamic/headgate.yaml
  headgate gateway config envoy --rules rules.yaml --grpc 10.0.0.7:8091 --output envoy.yaml
  headgate gateway config istio --grpc headgate-grpc.default.svc.cluster.local:8091

exit status: 0 done, 2 wrong usage, or a file that cannot be read or written"""
_GIVEN: Final = ("service", "grpc", "upstream", "listen", "server_name", "rules", "timeout", "full")


def _add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("name", metavar="NAME", help="nginx, caddy, traefik, envoy or istio")
    add("--service", metavar="URL", help="the URL of headgate serve (http://127.0.0.1:8090)")
    add("--grpc", metavar="HOST:PORT", help="its gRPC, for envoy and istio (127.0.0.1:8091)")
    add("--upstream", metavar="URL", help="your application (http://127.0.0.1:9000)")
    add("--listen", metavar="HOST:PORT", help="the address of the gateway (127.0.0.1:8080)")
    add("--server-name", metavar="NAME", help="the host name (default: any)")
    add(
        "--rules",
        metavar="PATH",
        help="pass the headers that these rules read, and wait for their delays",
    )
    add(
        "--on-failure",
        choices=("open", "closed"),
        help="allow (open) or deny (closed) requests while the service does not respond (open)",
    )
    add("--timeout", type=float, metavar="SECONDS", help="the timeout of a decision (0.25)")
    add("--full", action="store_true", default=None, help="nginx: a whole nginx.conf")
    add("--output", metavar="FILE", help="write to a new FILE")
    add_json(parser)


def _run(arguments: Namespace) -> ExitStatus:
    from headgate.gateway.templates import gateway_named

    gateway = gateway_named(arguments.name)
    text = _text(gateway, arguments)
    if arguments.json:
        text = json.dumps({"name": gateway.name, "text": text}, indent=2) + "\n"
    if arguments.output is None:
        print(text, end="")
    else:
        _write(Path(arguments.output), text)
    return ExitStatus.DONE


def _text(gateway: Gateway, arguments: Namespace) -> str:
    from headgate.gateway.templates import template_options

    given = {name: value for name in _GIVEN if (value := getattr(arguments, name)) is not None}
    gateway.check(frozenset(given))
    if gateway.grpc is not None:
        given.setdefault("grpc", gateway.grpc)
    if "full" in given:
        given["is_full"] = given.pop("full")
    if "rules" in given:
        given["policy"] = _policy(given.pop("rules"))
    on_failure = gateway.on_failure(arguments.on_failure)
    return gateway.text(template_options(**given, on_failure=on_failure))


def _policy(path: str) -> Policy:
    from headgate.cli.rules.texts import lines, texts_at
    from headgate.policy.loader import examine_policies

    examined = examine_policies(texts_at(path))
    if examined.policy is None:
        raise OptionError("; ".join(lines(examined.problems)))
    return examined.policy


def _write(target: Path, text: str) -> None:
    """Write *text* to a new file."""
    try:
        with target.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise OptionError(f"{str(target)!r} exists; choose another file") from None
    except OSError as error:
        raise OptionError(f"cannot write {str(target)!r}: {error.strerror or error}") from error


CONFIG: Final = Command(
    "gateway config",
    "print a configuration for your own gateway",
    _CONFIG,
    _CONFIG_EXAMPLES,
    _add_arguments,
    _run,
)
COMMAND: Final = Command(
    "gateway",
    "configure a gateway of your own",
    _DESCRIPTION,
    _EXAMPLES,
    commands=(CONFIG,),
)
