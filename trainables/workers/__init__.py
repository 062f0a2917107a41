"""A trial on Ray: the worker, groups of workers, the queue of their jobs, and the client that submits one.

This is the only room of `trainables` that imports Ray.
"""
