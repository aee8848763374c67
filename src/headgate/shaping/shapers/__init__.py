"""The leaky bucket as a queue, for code: in one process, and over a store."""
