"""WHAT is asked: schemas, row expressions, vector structure, sensitivity. Frozen values; no rows, no noise, no I/O."""
