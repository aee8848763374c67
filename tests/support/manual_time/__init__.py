"""A directory for PYTHONPATH: a Python process that starts with it reads its time from a file."""
