"""What a counter is in Redis: its name, its state, what a limit means to the scripts."""
