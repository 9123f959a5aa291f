"""``python -m dodona.cli``."""

from dodona.cli import main

main()
