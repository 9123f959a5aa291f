"""Attack ourselves: what an adversary may come to believe about a row, computed from what our oracles answered."""
