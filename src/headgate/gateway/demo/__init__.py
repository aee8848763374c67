"""What `headgate up` shows if it is given nothing: rules, an upstream, and what to try."""

from __future__ import annotations

from importlib.resources import files

from headgate.gateway.demo.introduction import dashboard_link, introduction
from headgate.gateway.demo.upstream import DemoUpstream

__all__ = ["DemoUpstream", "dashboard_link", "demo_rules", "introduction"]


def demo_rules() -> bytes:
    """The rules of the demo, with their comments."""
    return files(__name__).joinpath("rules.yaml").read_bytes()
