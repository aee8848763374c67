"""Outage fallback and reconciliation, heartbeats, waiting lines, and what both limiters share."""
