"""WHAT it costs: cost values, budgets, conversion, composition and the ledger. Names no mechanism.

- ``Cost`` and ``Budget`` are exact values; ``numbers`` reads what bears privacy exactly, and goes between rho
  and (epsilon, delta), rounded to the safe side.
- ``Ledger`` is the contract for spending; ``SqliteLedger`` keeps it in a file.
"""

from dodona._doors import open_doors

__getattr__, __dir__, __all__ = open_doors(__name__)
