"""A trial on Ray: the worker, groups of them, the queue of their jobs, and who submits one. The only room here that
imports Ray."""
