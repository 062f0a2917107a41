"""What tests of `edp` share: slow literal versions, adversaries, and what they run in several processes."""
