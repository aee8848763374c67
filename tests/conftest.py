"""What all tests have in common."""

from functools import cache

import httpx._transports.default
import pytest
from httpx import create_ssl_context

# Show the values when an assertion of the public contract fails.
pytest.register_assert_rewrite("headgate.testing")

# A client of httpx reads all authorities there are when it is made, for TLS or not: some 30 ms, and
# tests make thousands of them. What is read is the same each time.
vars(httpx._transports.default)["create_ssl_context"] = cache(create_ssl_context)
