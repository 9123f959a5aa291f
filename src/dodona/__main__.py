"""``python -m dodona``: the command line."""

from dodona.cli import main

main()
