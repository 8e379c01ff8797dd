"""The kernel IR: `nodes.py`, `builder.py`, `printer.py`, `rules.py`, `verify.py`, `lanes.py`, `interp.py` in order.

`rewrite.py` makes kernels of kernels, `math.py` vector maths of arithmetic.
"""

from gml.kernel_ir.builder import Builder, KernelError
from gml.kernel_ir.nodes import (
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    PTR,
    U8,
    U16,
    U32,
    U64,
    VOID,
    Block,
    Kernel,
    Node,
    Type,
)  # fmt: skip

__all__ = [
    "BOOL", "F16", "F32", "F64", "I8", "I16", "I32", "I64", "PTR", "U8", "U16", "U32", "U64", "VOID",
    "Block", "Builder", "Kernel", "KernelError", "Node", "Type",
]  # fmt: skip
