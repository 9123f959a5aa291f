"""WHO is trusted: the one idea, in one room.

An oracle answers statistical queries (``oracle.py`` is the contract), and which one you hold says who is trusted:

- ``exact``: the holder of the rows, for their own eyes: no noise;
- ``curator``: one curator holds the rows, charges a ledger, and adds noise;
- ``remembering``: the same, and what it told before it tells again for nothing;
- ``local``: nobody: each row randomises itself;
- ``collected``: nobody: reports that real people's devices sent; or nobody with a row and one party with whose it is,
  where a shuffler forwards the reports (``Shuffled``);
- ``remote``: a server's curator, over HTTP;
- ``synopsis``: nobody any more: what is published answers for ever.

``view`` and ``fronts`` stand before an oracle and pass questions on; ``dataset`` joins tables about the same people.
"""
