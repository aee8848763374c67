"""The soft edge: delay instead of denial, turns by weight, limits that lower themselves."""
