"""WHAT it costs: cost values, budgets, conversion, composition and the ledger. Names no mechanism."""
