"""Client libraries for Redis, side by side: what a bare EVALSHA costs through each."""
