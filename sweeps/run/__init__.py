"""A sweep on Ray: its driver, study, trials and early stopping, resources, the session, and progress for people.

Must not import commands, attacks or the registry.
"""
