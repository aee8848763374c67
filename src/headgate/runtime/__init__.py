"""The surroundings of a use case: drivers, fallback during an outage, heartbeats, waiting lines.

Use cases and store layers yield effects (`effects`), which a driver (`drivers`) performs in a
thread or in an event loop. Read `effects` first, then `fallback`.
"""
