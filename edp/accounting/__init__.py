"""Prices of what was executed: the ε of a ledger, the noise for a target ε, the cost of a selection, and audits.

Reads ledgers; must not import the hook.
"""
