"""Benchmarks: what private training costs, against plain SGD and against the peers."""
