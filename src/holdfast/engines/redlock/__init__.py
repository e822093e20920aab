"""`redlock://`: independent nodes, a majority."""
