"""What runs beside decisions: outage fallback and reconciliation, heartbeats, waiting lines."""
