"""Block formats: one file per format, registered by import. See `base.py` for what a format is."""

from gml.quants.base import QuantType, all_types, by_id, by_name, register

__all__ = ["QuantType", "all_types", "by_id", "by_name", "register"]
