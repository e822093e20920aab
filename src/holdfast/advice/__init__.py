"""What `holdfast advise` knows: the questions that matter, and what follows from the answers."""
