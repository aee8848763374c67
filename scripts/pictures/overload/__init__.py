"""Demand above capacity, on virtual time: what shaping, fairness and pressure make of it."""
