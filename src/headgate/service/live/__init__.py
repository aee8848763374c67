"""Live figures of all workers of a node: now and in the last minutes.

recorder          samples the journal once a second: rings, cells, latency
worker_state      the state of this worker: policy, store, busiest keys
snapshot          all figures of a worker, as data and as bytes
shared_snapshots  memory that the workers share, where each publishes its snapshot
merging           merges the snapshots of all workers
view              all of that for one worker, once a second and on request; read this first
measures          the service's own metrics, and the text of `/metrics`
"""

from headgate.service.live.measures import ServiceMeasures
from headgate.service.live.shared_snapshots import SharedSnapshots
from headgate.service.live.view import Live, LiveOptions

__all__ = ["Live", "LiveOptions", "ServiceMeasures", "SharedSnapshots"]
