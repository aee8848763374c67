"""The policy of a fleet in etcd, version 3: one transaction per change, watched by every node.

    storage = EtcdStorage.open("etcds://headgate@etcd-1,etcd-2,etcd-3/headgate?ca=/etc/ssl/etcd.pem")

storage (revisions, layout) -> client (members, streams) -> messages; `url` reads the address
"""

from __future__ import annotations

from headgate.control.etcd.url import EtcdURL, Options, TLSFiles, parse_etcd_url
from headgate.errors import OptionError

try:
    from headgate.control.etcd.storage import EtcdStorage
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "grpc":
        raise
    raise OptionError(
        "a policy in etcd needs the package 'grpcio': pip install 'headgate[service]'"
    ) from error

__all__ = ["EtcdStorage", "EtcdURL", "Options", "TLSFiles", "parse_etcd_url"]
