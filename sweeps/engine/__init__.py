"""A sweep on Ray: its driver, study, trials and early stopping, resources, the session, and progress on screen.

`jobs` has a file for each of search, training, confirmation, release and attack. Must not import the commands.
"""
