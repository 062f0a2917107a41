"""Gaussian noise: secret streams, a compiled kernel for them, and noise that is correlated over steps.

Knows nothing of gradients, budgets or ledgers: must not import the mechanism.
"""
