"""Envoy's quota service: limits divided among gateways, which enforce their parts themselves.

What it promises, for a limit of burst C and rate R (see `rates`), if messages reach connected
gateways within `RlqsOptions.delivery`:

- The rates of all gateways, on all replicas that share a board, never sum above R, and in any time
  t gateways admit at most C + R * t together, whoever comes, goes or is moved (`ledger`). With more
  gateways than C it is their number in place of C: each needs a token to admit anything.
- After a restart that forgot what was assigned (`MemoryBoard`) it is 1 + `restart_share` times that
  for one `ttl`, then the limit again. With a board that is shared nothing is forgotten.
- Rates follow demand, fairly (`rates`), and leave room for others who use the same counters
  (`charging`).

The path of a bucket: `reports` (what a gateway reports), `rates` (what the rules say about it),
`gateway` (demand and use), `charging` (the counters), `turn` (who gets what), `shared` (the board),
`messages` (the reply).
"""

from headgate.service.rlqs.calls import QuotaCalls
from headgate.service.rlqs.messages import PATH
from headgate.service.rlqs.options import RlqsOptions
from headgate.service.rlqs.shared import Board, MemoryBoard

__all__ = ["PATH", "Board", "MemoryBoard", "QuotaCalls", "RlqsOptions"]
