"""Where lock state lives: one engine a file, chosen by the scheme of its URL."""
