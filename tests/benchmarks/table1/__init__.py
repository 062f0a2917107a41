"""The paper's Table 1: its points at the ε that they have, beside SGD, its mechanism and private recipes here."""
