"""MLflow: the tracker, the runs of jobs, notes, and the runs that are sent later. Must not import Ray or run."""
