"""What a trial is asked to do and what it leaves: jobs, results, epochs, ledgers, files written whole or not at all.
Must not import PyTorch models or Ray."""
