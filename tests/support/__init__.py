"""What several tests share: corpora, models, sweeps and servers that they make, and how they wait."""
