"""Block formats: one file per format, registered by import. See `base.py` for what a format is."""

from gml.quants import (  # noqa: F401  (importing a format registers it)
    iq1_m,
    iq1_s,
    iq2_s,
    iq2_xs,
    iq2_xxs,
    iq3_s,
    iq3_xxs,
    iq4_nl,
    iq4_xs,
    mxfp4,
    nvfp4,
    q1_0,
    q2_0,
    q2_k,
    q3_k,
    q4_0,
    q4_1,
    q4_k,
    q5_0,
    q5_1,
    q5_k,
    q6_k,
    q8_0,
    q8_1,
    q8_k,
    tq1_0,
    tq2_0,
)
from gml.quants.base import QuantType, all_types, by_id, by_name, register
from gml.quants.codes import Codes, CodeTraits
from gml.quants.fields import Fields

__all__ = ["CodeTraits", "Codes", "Fields", "QuantType", "all_types", "by_id", "by_name", "register"]
