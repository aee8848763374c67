"""Adapters of the integration contract, one module per framework, and real servers for them.

Read `plain` first: apps without a framework.
"""
