"""How the prefix counts of an ordered column are measured: by trees, factorisations, cut points or search."""
