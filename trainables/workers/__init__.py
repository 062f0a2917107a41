"""A trial on Ray: the worker, groups of workers, the queue of their jobs, and the client that submits one. The only
room here that imports Ray."""
