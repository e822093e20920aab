"""The two public APIs: the same shapes, blocking and asyncio. No recipe lives here."""
