"""How tables of conjunctions are measured and fitted."""
