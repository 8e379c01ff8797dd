"""Matrix multiplication of quantised weights in integers: what `mul_mat` becomes in compiled code.

    quantize_q8(x)         activations as signed bytes with scales and sums (`activations.py`)
    pack_panels(w)         a weight matrix rearranged for the micro-kernel (`panels.py`), once per model
    mul_mat_q8(panels, q)  the micro-kernel over both (`micro_kernel.py`)

Next module: `gml/graph.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gml.dtypes import F32 as TF32
from gml.dtypes import I8 as TI8
from gml.errors import UnsupportedError
from gml.kernel_ir import Node
from gml.ops.activations import dequantize_rows, quantize_q8
from gml.ops.base import Inferred, OpDef, rule
from gml.ops.lower import Chunks, Direct, KernelContext, Place, Tiles
from gml.ops.micro_kernel import compute, enter, enter_file, panel_chunks, walk
from gml.ops.panels import ROWS, PackAttrs, decode_panels, pack_panel
from gml.quants import QuantType
from gml.tensor import Tensor

# -- weights -----------------------------------------------------------------------------------------------------------


def _infer_pack(attrs: PackAttrs, w: Tensor) -> Inferred:
    rule(
        w.type.name == attrs.type and w.ne[:2] == (attrs.k, attrs.n), f"expected {attrs.type}[{attrs.k}, {attrs.n}, ..]"
    )
    return Inferred(TI8, (attrs.layout.panel_bytes(attrs.k), -(-attrs.n // ROWS), w.ne[2], w.ne[3]))


def _reference_pack(attrs: PackAttrs, w: np.ndarray) -> np.ndarray:
    raise UnsupportedError("pack_panels is made by the compiler and has no meaning in values; see `decode_panels`")


def _lower_pack(k: KernelContext, attrs: PackAttrs, out: Place, w: Place) -> None:
    n_panels = -(-attrs.n // ROWS)

    def panel(chunk: Node) -> None:
        p, i2, i3 = k.split(chunk, [n_panels, *out.ne[2:]])
        pack_panel(k, attrs, w, k.value(p), (i2, i3), out.row((p, i2, i3)))

    k.b.loop(k.begin, k.end, panel)


pack_panels = OpDef(
    "pack_panels",
    _infer_pack,
    _reference_pack,
    [],
    attrs=PackAttrs,
    lower=Direct(_lower_pack, lambda attrs, out, w: Chunks(((-(-attrs.n // ROWS), 1), (out.ne[2], 1), (out.ne[3], 1)))),
    compare=lambda attrs, panels, w: (_panel_values(attrs, panels), w),
)


# -- products ----------------------------------------------------------------------------------------------------------


def _infer_mul_mat_q8(attrs: PackAttrs, panels: Tensor, x: Tensor) -> Inferred:
    return Inferred(TF32, (attrs.n, x.ne[1], x.ne[2], x.ne[3]))


def _partner(attrs: PackAttrs, out: Tensor, panels: Tensor, x: Tensor) -> Any:
    return ("mul_mat_q8", x, out.ne, panels.ne[2:], panels.type.name)


def _panel_values(attrs: PackAttrs, panels: np.ndarray) -> np.ndarray:
    """The weights that panels stand for, float32 [n3, n2, n, k]."""
    n3, n2 = panels.shape[:2]
    w = [decode_panels(attrs.dtype, p) for p in panels.reshape(n3 * n2, *panels.shape[2:])]
    return np.stack(w).reshape(n3, n2, -1, attrs.k)[:, :, : attrs.n]


def _reference_mul_mat_q8(attrs: PackAttrs, panels: np.ndarray, x: np.ndarray) -> np.ndarray:
    return _products(_panel_values(attrs, panels), dequantize_rows(attrs.k, x))


def _reference_mul_mat_q8_file(attrs: PackAttrs, w: np.ndarray, x: np.ndarray) -> np.ndarray:
    return _products(w, dequantize_rows(attrs.k, x))


def _products(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """x w^T with the batches of w repeated over those of x."""
    for axis in (0, 1):
        w = np.repeat(w, x.shape[axis] // w.shape[axis], axis=axis)
    return x @ w.swapaxes(-1, -2).astype(np.float64)


mul_mat_q8 = OpDef(
    "mul_mat_q8",
    _infer_mul_mat_q8,
    _reference_mul_mat_q8,
    [],
    attrs=PackAttrs,
    lower=Tiles(panel_chunks, walk, compute, _partner, enter),
    macs=lambda attrs, out, panels, x: out.n_elements * attrs.k,
)

mul_mat_q8_file = OpDef(
    "mul_mat_q8_file",
    _infer_mul_mat_q8,
    _reference_mul_mat_q8_file,
    [],
    attrs=PackAttrs,
    lower=Tiles(panel_chunks, walk, compute, _partner, enter_file),
    macs=lambda attrs, out, w, x: out.n_elements * attrs.k,
)


def refine_mul_mat(attrs: Any, options: Any, w: Tensor, x: Tensor) -> Tensor | None:
    """Quantised weights that are constants, in packed panels, times quantised activations."""
    dtype = w.type
    if options.exact or not isinstance(dtype, QuantType) or dtype.traits is None or w.root.role != "constant":
        return None
    if not (isinstance(w.ne[0], int) and isinstance(w.ne[1], int) and w.nb[0] == dtype.type_size) or x.type is not TF32:
        return None
    shape = {"type": dtype.name, "k": w.ne[0], "n": w.ne[1]}
    activations = quantize_q8(x, k=w.ne[0])
    if options.layout == "file":
        return mul_mat_q8_file(w, activations, **shape)
    return mul_mat_q8(pack_panels(w, **shape), activations, **shape)
