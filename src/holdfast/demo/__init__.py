"""The story of the split brain, told by real processes."""
