"""What the commands do, each from its arguments to its result: run, train, confirm, pick, pretrain. Must not import
the command line."""
