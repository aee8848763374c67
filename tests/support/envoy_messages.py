"""Envoy's messages as its own package has them. They are not typed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

base: Any = import_module("envoy.config.core.v3.base_pb2")
descriptors: Any = import_module("envoy.extensions.common.ratelimit.v3.ratelimit_pb2")
service: Any = import_module("envoy.service.ratelimit.v3.rls_pb2")
units: Any = import_module("envoy.type.v3.ratelimit_unit_pb2")
