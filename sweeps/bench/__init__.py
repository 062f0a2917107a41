"""Benchmarks: the time of a private training step against plain SGD's and the peers', and the paper's Table 2.

Must not import the command line.
"""
