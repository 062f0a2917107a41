"""What was executed, priced: epsilon of a ledger, the noise that a target epsilon needs, what a selection costs, and
what an audit proves. Reads ledgers; must not import the hook."""
