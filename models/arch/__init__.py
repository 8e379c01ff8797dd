"""Model architectures: one file per wiring over `layers.py`; `base.py` says what an architecture is."""
