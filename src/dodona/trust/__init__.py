"""WHO is trusted: one oracle per trust model."""
