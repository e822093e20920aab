"""`holdfast bench`: what the lock table, an engine and the API cost, alone and beside a peer."""
