"""Figures, epsilons, tables and errors as text. Imports nothing else of the sweeps."""
