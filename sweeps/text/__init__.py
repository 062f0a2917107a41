"""Metrics, epsilons, tables, names and errors as text. Imports no other room of the sweeps."""
