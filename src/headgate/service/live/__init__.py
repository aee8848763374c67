"""What the service is doing, now and lately: of all workers of a node together.

ring        counts by second and by minute, in bounded memory
latency     how long decisions took in the last minute
cells       what rules said, by source: since it began, and lately
recorder    looks at the journal once a second, and fills those
standing    how this worker stands: its policy, its store, the busiest keys
snapshot    all that a worker has to say, as data, and as bytes
former      what the worker before this one has counted
boards      memory that the workers of a node share, where each leaves its snapshot
telling     several snapshots as the text of `/metrics`
merging     several snapshots as one, in figures
points      the same, in points to draw
whole       both, and everything else: one picture of the node
picture     all of that for one worker, once a second and when somebody asks
measures    what is told of the service itself at `/metrics`
"""

from headgate.service.live.boards import Boards
from headgate.service.live.measures import ServiceMeasures
from headgate.service.live.picture import Live, LiveOptions

__all__ = ["Boards", "Live", "LiveOptions", "ServiceMeasures"]
