"""Policies: which requests a rule matches, what it counts by, and its limits.

Read `model` first, then `loader` (from a file to models) and `matcher` (from a request to rules).
"""
