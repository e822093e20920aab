"""Real servers on loopback, each in a process and a folder of its own: for the verifier and for tests."""
