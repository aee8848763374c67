"""Live figures of all workers of a node: now and in the last minutes.

recorder    reads the journal once a second: rings, cells, latency
standing    the state of this worker: policy, store, busiest keys
snapshot    all figures of a worker, as data and as bytes
boards      memory that the workers share, where each leaves its snapshot
merging     several snapshots as one
picture     all of that for one worker, once a second and on request
measures    the service's own metrics, and the text of `/metrics`
"""

from headgate.service.live.boards import Boards
from headgate.service.live.measures import ServiceMeasures
from headgate.service.live.picture import Live, LiveOptions

__all__ = ["Boards", "Live", "LiveOptions", "ServiceMeasures"]
