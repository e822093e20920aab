"""`postgresql://`: the lock table in a database."""
