"""One checker, one claim: each reads a history and says kept, broken, not decided or not tested."""
