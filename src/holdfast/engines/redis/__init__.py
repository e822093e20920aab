"""`redis://` and its kin."""
