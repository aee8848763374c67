"""When this matches, count by that key against these limits: the model, reading it, matching."""
