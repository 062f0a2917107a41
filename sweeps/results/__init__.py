"""Results of a sweep: the front, ties, costs, the recommendation, DataFrames.

Reads a sweep and writes nothing. Must not import tracking or run.
"""
