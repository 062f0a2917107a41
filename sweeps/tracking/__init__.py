"""All that writes to MLflow: the tracker, the runs of trials, notes, and what is sent later. Must not import Ray or
what runs."""
