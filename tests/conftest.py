"""Show the values when an assertion of the public contract fails."""

import pytest

pytest.register_assert_rewrite("headgate.testing")
