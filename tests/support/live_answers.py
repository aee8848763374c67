"""Answers of `/admin/v1/live`, made up."""

from __future__ import annotations

from typing import Any

NOW = 1_763_320_000.0
POINTS = 120


def rule(rule_id: str, *, allowed: float = 0, denied: float = 0, **more: Any) -> dict[str, Any]:
    """A rule that lately had so many a second."""
    rates = {"allowed": allowed, "denied": denied, "shadow_allowed": 0, "shadow_denied": 0}
    rates |= more.pop("per_second", {})
    totals = {name: round(100 * value) for name, value in rates.items()}
    usual = {"mode": "enforce", "candidate_of": None, "sources": {"store": 10}}
    return {"rule_id": rule_id, **usual, **totals, "per_second": rates, **more}


def key(rule_id: str, name: str, per_second: float) -> dict[str, Any]:
    return {"rule_id": rule_id, "key": name, "per_second": per_second, "at_most": per_second}


def candidate(rule_id: str, **more: Any) -> dict[str, Any]:
    usual = {
        "rule_id": rule_id,
        "candidate_of": None,
        "since": NOW - 86_400,
        "requests": 9000,
        "would_deny": 312,
        "denied_anyway": 0,
        "keys": 14,
        "keys_exact": True,
        "newly_denied": None,
        "newly_allowed": None,
    }
    return {**usual, **more}


def answer(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What a service says that has these rules."""
    points = {
        one["rule_id"]: {
            name: [float(one["per_second"][name])] * POINTS
            for name in ("allowed", "denied", "shadow_denied")
        }
        for one in rules
    }
    usual = {
        "at": NOW,
        "began": NOW - 3600,
        "version": "0.1.0",
        "workers": 2,
        "policy": {
            "revision": 7,
            "rules": len(rules),
            "current": True,
            "stale": False,
            "trouble": None,
            "problems": 0,
            "failures": 0,
        },
        "store": {"url": "redis://host:6379/0", "state": "ok", "trouble": [], "errors": {}},
        "factor": 1.0,
        "requests": {"allowed": 12_345, "denied": 67},
        "latency": {"p50": 0.000012, "p90": 0.0002, "p99": 0.0014, "count": 812},
        "rules": list(rules),
        "series": {"end": int(NOW), "step": 1, "rules": points},
        "busiest_keys": [],
        "refused_keys": [],
        "queues": [],
        "candidates": [],
    }
    return {**usual, **more}
