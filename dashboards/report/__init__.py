"""The report of a sweep: one file that a privacy review can read, print and keep."""
