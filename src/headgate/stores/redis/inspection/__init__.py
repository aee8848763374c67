"""Counters as people see them: found without disturbing anybody, and read."""
