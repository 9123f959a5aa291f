"""Nobody is trusted: what runs on a respondent's device and what adds up its reports.

``Client`` makes a report from one person's answers, ``Collector`` checks, adds and merges reports. This room needs
NumPy and nothing of engines or servers; the ``Local`` oracle (``oracles/local``) runs the same randomisers over stored
rows, so a simulated population and a real one are told apart by nothing.
"""

from dodona._doors import open_doors

__getattr__, __dir__, __all__ = open_doors(__name__)
