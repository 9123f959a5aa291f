"""Published results as values: what each kind of release holds and how it answers, free, for ever, without rows."""
