"""Libraries that Holdfast is measured against. Each is an extra, imported when it is asked for."""
