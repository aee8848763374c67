"""Policies: which requests a rule matches, what it counts by, and its limits.

Read `model` first, then `loader` (from text to a model) and `matcher` (from a request to rules).
"""
