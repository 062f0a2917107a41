"""Every attack on one trained model, and the models that attacks need. Must not import commands."""
