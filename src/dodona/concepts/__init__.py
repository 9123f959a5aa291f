"""CLASSES of questions as values: how many, how rich, and how each becomes a query."""
