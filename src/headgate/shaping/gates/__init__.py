"""Gates: turns by weight, out of slots or of a rate."""
