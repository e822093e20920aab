"""The fronts: each recipe written once, as coroutines over an Io."""
