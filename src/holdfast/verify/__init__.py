"""Faults on real servers, and the judge of what comes of them."""
