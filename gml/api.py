"""The public API, gathered: what `import gml` offers, imported when something of it is first used.

Last module of the core; `gml/__init__.py` looks names up here.
"""

from __future__ import annotations

from gml import errors, ops, quants
from gml.arena import Arena, Mark
from gml.backend import Backend, Program, backend_names, compile, default_backend, get_backend
from gml.context import Context
from gml.debug import knobs
from gml.dims import Dim, Size, SizeExpr
from gml.dtypes import BF16, F16, F32, F64, I8, I16, I32, I64, DType
from gml.errors import (
    ArenaError,
    ContextFullError,
    DownloadError,
    Error,
    FormatError,
    GraphError,
    ShapeError,
    TokenizerError,
    UnsupportedError,
    UsageError,
)
from gml.graph import Graph
from gml.ops import *  # noqa: F403
from gml.ops.base import Inferred, NoAttrs, OpDef, Sample, SampleBuilder, declare, rule
from gml.ops.lower import Chunks, Direct, Elementwise, Indexed, KernelContext, RowSink, Rowwise
from gml.quants import Codes, CodeTraits, Fields, QuantType, by_name, register
from gml.tensor import Tensor

Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1 = map(by_name, ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q8_1"))
Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q8_K = map(by_name, ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_K"))
IQ4_NL, IQ4_XS, TQ1_0, TQ2_0, MXFP4 = map(by_name, ("IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4"))
IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S = map(by_name, ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S"))
IQ3_XXS, IQ3_S, NVFP4, Q1_0, Q2_0 = map(by_name, ("IQ3_XXS", "IQ3_S", "NVFP4", "Q1_0", "Q2_0"))

__all__ = [
    "BF16",
    "F16",
    "F32",
    "F64",
    "I8",
    "I16",
    "I32",
    "I64",
    "IQ1_M",
    "IQ1_S",
    "IQ2_S",
    "IQ2_XS",
    "IQ2_XXS",
    "IQ3_S",
    "IQ3_XXS",
    "IQ4_NL",
    "IQ4_XS",
    "MXFP4",
    "NVFP4",
    "Q1_0",
    "Q2_0",
    "Q2_K",
    "Q3_K",
    "Q4_0",
    "Q4_1",
    "Q4_K",
    "Q5_0",
    "Q5_1",
    "Q5_K",
    "Q6_K",
    "Q8_0",
    "Q8_1",
    "Q8_K",
    "TQ1_0",
    "TQ2_0",
    "Arena",
    "ArenaError",
    "Backend",
    "Chunks",
    "CodeTraits",
    "Codes",
    "Context",
    "ContextFullError",
    "DType",
    "Dim",
    "Direct",
    "DownloadError",
    "Elementwise",
    "Error",
    "Fields",
    "FormatError",
    "Graph",
    "GraphError",
    "Indexed",
    "Inferred",
    "KernelContext",
    "Mark",
    "NoAttrs",
    "OpDef",
    "Program",
    "QuantType",
    "RowSink",
    "Rowwise",
    "Sample",
    "SampleBuilder",
    "ShapeError",
    "Size",
    "SizeExpr",
    "Tensor",
    "TokenizerError",
    "UnsupportedError",
    "UsageError",
    "backend_names",
    "by_name",
    "compile",
    "declare",
    "default_backend",
    "errors",
    "get_backend",
    "knobs",
    "ops",
    "quants",
    "register",
    "rule",
]  # fmt: skip
__all__ += ops.__all__
