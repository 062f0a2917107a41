"""How configurations are found: the study, the searcher, target epsilons, early and random stopping. Must not import
tracking or execution."""
