"""One file for each of search, training, confirmation, release and attack."""
