"""Pure logic: no clock, no socket, no thread, no randomness."""
