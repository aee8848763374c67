"""Live figures of all workers of a node: now and in the last minutes.

view              the figures of all workers, once a second and on request; read this first
recorder          samples of the decision recorder: points by second and minute, recent growth
snapshot          all figures of a worker, which it publishes
shared_snapshots  the memory that the workers share for them
merged_view       the snapshots of all workers, merged
envoy_counts      what Envoy decides by itself
fleet             figures of the nodes that share a store
traffic           their series over a time range, and latency
measures          the service's own metrics
"""

from headgate.service.live.fleet import Fleet
from headgate.service.live.measures import ServiceMeasures
from headgate.service.live.shared_snapshots import SharedSnapshots
from headgate.service.live.view import Live

__all__ = ["Fleet", "Live", "ServiceMeasures", "SharedSnapshots"]
