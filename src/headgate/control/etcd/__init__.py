"""The policy of a fleet in etcd, version 3: one transaction per change, watched by every node.

    source = EtcdSource.open("etcds://headgate@etcd-1,etcd-2,etcd-3/headgate?ca=/etc/ssl/etcd.pem")

source (revisions, layout; read first) -> client (members, watches); `url` parses the address
"""

from headgate.control.etcd.source import EtcdSource
from headgate.control.etcd.url import EtcdURL, TLSFiles, parse_etcd_url

__all__ = ["EtcdSource", "EtcdURL", "TLSFiles", "parse_etcd_url"]
