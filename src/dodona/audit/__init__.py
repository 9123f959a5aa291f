"""Attack ourselves: proofs on small sizes, lower bounds on whole algorithms, and the attacks others would try.

``every_check`` is what ``dodona audit`` runs; ``canary`` bounds what a whole algorithm gives away; ``reconstruct``
tries to get the rows back; ``belief`` says what an adversary may come to think of one row (SuLQ Definition 1).
"""

from dodona._doors import open_doors

__getattr__, __dir__, __all__ = open_doors(__name__)
