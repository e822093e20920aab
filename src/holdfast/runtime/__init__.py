"""One source of coroutines, three drivers: blocking, asyncio, simulated."""
