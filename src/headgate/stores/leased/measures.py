"""What is told of all leased stores of a process."""

from __future__ import annotations

from headgate.observability import MEASURES

ROUND_TRIPS = MEASURES.counter("lease_round_trips", "Exchanges with the store about leases.")
EXCHANGES = MEASURES.counter("sync_exchanges", "Exchanges with the store about licences.")
SERVED = MEASURES.counter("lease_served", "Units that were admitted from leases and licences.")
DRAWS = MEASURES.counter("pot_draws", "Requests that were admitted from pots of hot keys.")
FILLS = MEASURES.counter("pot_fills", "Times that a pot of a hot key was filled.")
CACHED = MEASURES.counter("denials_from_cache", "Requests refused without asking the store.")
