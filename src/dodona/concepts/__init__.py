"""CLASSES of questions as values: how many, how rich, and how each becomes a query."""

from dodona._doors import open_doors

__getattr__, __dir__, __all__ = open_doors(__name__)
