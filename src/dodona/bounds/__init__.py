"""The papers' theorems as planners: how many rows, how much noise, is it possible at all; before anything is spent."""
