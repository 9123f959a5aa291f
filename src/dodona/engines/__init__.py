"""WHERE rows live: the only room that touches rows. Engines return exact integer totals and nothing else."""
