"""`postgresql://…?recipe=advisory`: session advisory locks."""
