"""`headgate gateway config`: print a configuration for your own gateway.

Print a working configuration for your own gateway, which asks `headgate serve` about every request:
nginx, caddy, traefik, envoy or istio. Comments explain each part.

Features of each gateway, and its behaviour without the service: docs/your-gateway.md.

examples:
  headgate gateway config nginx --upstream http://127.0.0.1:9000 > /etc/nginx/conf.d/headgate.conf
  headgate gateway config nginx --full --on-failure closed --output nginx.conf
  headgate gateway config caddy --service unix:/run/headgate/http.sock --server-name example.org
  headgate gateway config traefik --rules rules.yaml --output dynamic/headgate.yaml
  headgate gateway config envoy --rules rules.yaml --grpc 10.0.0.7:8091 --output envoy.yaml
  headgate gateway config istio --grpc headgate-grpc.default.svc.cluster.local:8091

exit status: 0 done, 2 wrong usage, or a file that cannot be read or written
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.cli.command import JSON, Command, ExitStatus, argument, flag, number
from headgate.errors import OptionError

if TYPE_CHECKING:
    from argparse import Namespace

    from headgate.gateway.templates import Gateway

_GROUP: Final = """\
`headgate gateway`: configure a gateway of your own.

Configure a gateway that you run already. (`headgate up` runs one for you.)

examples:
  headgate gateway config nginx
  headgate gateway config envoy --rules rules.yaml --output envoy.yaml

See also headgate gateway config --help."""
_GIVEN: Final = ("service", "grpc", "upstream", "listen", "server_name", "rules", "timeout", "full")


_ARGUMENTS: Final = (
    argument("name", "NAME", "nginx, caddy, traefik, envoy or istio"),
    argument("--service", "URL", "the URL of headgate serve (http://127.0.0.1:8090)"),
    argument("--grpc", "HOST:PORT", "its gRPC, for envoy and istio (127.0.0.1:8091)"),
    argument("--upstream", "URL", "your application (http://127.0.0.1:9000)"),
    argument("--listen", "HOST:PORT", "the address of the gateway (127.0.0.1:8080)"),
    argument("--server-name", "NAME", "the host name (default: any)"),
    argument("--rules", "PATH", "pass the headers that these rules read, wait for their delays"),
    argument(
        "--on-failure",
        None,
        "allow (open) or deny (closed) requests while the service does not respond (open)",
        choices=("open", "closed"),
    ),
    argument("--timeout", "SECONDS", "the timeout of a decision (0.25)", type=number),
    flag("--full", "nginx: a whole nginx.conf"),
    argument("--output", "FILE", "write to a new FILE"),
    JSON,
)


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
    from headgate.cli.policies import policy_at
    from headgate.gateway.templates import template_options

    stated = {name: getattr(arguments, name) for name in _GIVEN}
    given = {
        name: value for name, value in stated.items() if value is not None and value is not False
    }
    gateway.check(given)
    if gateway.grpc is not None:
        given.setdefault("grpc", gateway.grpc)
    if "full" in given:
        given["is_full"] = given.pop("full")
    if "rules" in given:
        given["policy"] = policy_at(given.pop("rules"))
    on_failure = gateway.on_failure(arguments.on_failure)
    return gateway.text(template_options(**given, on_failure=on_failure))


def _write(target: Path, text: str) -> None:
    """Write *text* to a new file."""
    try:
        with target.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise OptionError(f"{str(target)!r} exists; choose another file") from None
    except OSError as error:
        raise OptionError(f"cannot write {str(target)!r}: {error.strerror or error}") from error


CONFIG: Final = Command("gateway config", __doc__, _ARGUMENTS, _run)
COMMAND: Final = Command("gateway", _GROUP, commands=(CONFIG,))
