"""The loop of one worker: pieces, optimisers, layer scales, checkpoints, reference models of attacks. Must not import
Ray."""
