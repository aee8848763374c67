"""Envoy's rate limit quota service (RLQS): divides limits among gateways, which enforce their
shares.

Promises for a limit of burst C and rate R (see `rates`), if messages reach connected gateways
within `RlqsOptions.delivery`:

- The rates of all gateways, on all replicas with one ledger store, never sum above R, and in any
time t gateways together allow at most C + R * t, however gateways come, go or move (`ledger`). With
more gateways than C, their number replaces C: each needs one token to allow anything.
- After a restart that lost the assignments (`MemoryLedgerStore`) it is twice that until a gateway
  has reported usage from before (Envoy: within 5 seconds), then 1 + `restart_share` times until the
  first `ttl` has passed, then the limit again. A shared ledger store loses nothing.
- Rates follow demand fairly (`rates`) and leave room for other users of the same counters
  (`charges`).

The path of a bucket: `reports` (usage reports), `rates` (limits of the bucket), `gateway` (demand
and usage), `charges` (counters), `allocation` (the division), `shared` (ledger stores), `messages`
(the reply). Read `calls` first.
"""

from headgate.service.rlqs.calls import QuotaCalls
from headgate.service.rlqs.messages import PATH
from headgate.service.rlqs.options import RlqsOptions
from headgate.service.rlqs.shared import LedgerStore, MemoryLedgerStore

__all__ = ["PATH", "LedgerStore", "MemoryLedgerStore", "QuotaCalls", "RlqsOptions"]
