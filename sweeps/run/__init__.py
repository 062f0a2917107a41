"""A sweep on Ray: sessions, resources, what trials share, Tune's trials, the baseline, and what notices that Ray
died. Must not import commands or the registry."""
