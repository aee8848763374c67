"""What is asked: operations as calls of scripts, many in one, and who waits for which."""
