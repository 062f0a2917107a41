"""The input and output of a trial: jobs, results, epochs, ledgers, files written whole or not at all. Must not import
PyTorch models or Ray."""
