"""One large sparse graph: krylow against scipy, primme, pyamg and PyGSP, each at its cheapest setting that is right.

``graphs`` makes the graphs, ``reference`` their subspaces to 1e-10, ``solvers`` calls ours and the peers, ``worker``
runs them in a process that can be stopped, ``tune`` finds each peer's cheapest setting, ``race`` times the best of them
and ours in turns, ``assemble`` makes the record, ``render`` its table and picture, ``run`` does all of it in order.
"""
