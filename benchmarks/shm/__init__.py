"""Speed of the store in shared memory, beside Redis on loopback."""
