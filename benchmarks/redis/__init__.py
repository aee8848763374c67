"""Speed and memory of the Redis store, beside its peers, redis-py and redis-benchmark."""
