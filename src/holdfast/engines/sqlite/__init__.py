"""`sqlite:///`: the lock table in a file."""
