"""The lock server: the lock table as a service."""
