"""A sweep on disk: its folder, its records, the lock of its driver. Must not import what runs."""
