"""For tests only: conformance suites others can run, and the one door through which a seed may enter.

``check_engine``, ``check_oracle`` and ``check_mechanism`` judge an implementation of the matching contract, and
``check_margins`` whether the errors that an answer, a release or a learner states hold; they raise AssertionError with
the case that failed. Nothing here is imported by production code.
"""

from dodona._doors import open_doors

__getattr__, __dir__, __all__ = open_doors(__name__)
