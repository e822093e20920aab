"""`holdfast://`: the client's side of the lock server."""
