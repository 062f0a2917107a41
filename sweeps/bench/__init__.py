"""Benchmarks: what private training costs, against plain SGD and against the peers; and
the paper's tables. Must not import the command line."""
