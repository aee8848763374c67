"""gRPC: what a method is (`method`), and the servers that carry calls to it."""
