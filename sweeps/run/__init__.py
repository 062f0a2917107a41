"""A sweep on Ray: its driver, study, trials and early stopping, resources, the session, and progress on screen.

Must not import the commands or the registry.
"""
