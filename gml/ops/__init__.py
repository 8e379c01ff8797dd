"""All ops, gathered: each file declares some, and the functions that call them are the public API.

Importing this package fills `gml.ops.base.registry` and Python's operators on tensors. Next module: `gml/graph.py`.
"""

from gml.ops.attention import flash_attn_ext
from gml.ops.conv import conv_1d, conv_2d, im2col
from gml.ops.create import arange, timestep_embedding
from gml.ops.custom import map_custom
from gml.ops.elementwise import abs, add, clamp, cos, div, exp, log, mul, neg, scale, scale_bias, sin, sqr, sqrt, sub
from gml.ops.glu import (
    geglu,
    geglu_erf,
    geglu_erf_split,
    geglu_quick,
    geglu_quick_split,
    geglu_split,
    reglu,
    reglu_split,
    swiglu,
    swiglu_split,
)
from gml.ops.indexing import get_rows, set_rows
from gml.ops.loss import cross_entropy_loss
from gml.ops.matmul import mul_mat, mul_mat_id, out_prod
from gml.ops.movement import cast, concat, cont, cpy, dup, pad, pad_ext, repeat, set
from gml.ops.norm import group_norm, l2_norm, norm, rms_norm
from gml.ops.pool import pool_1d, pool_2d
from gml.ops.reduce import argmax, argsort, cumsum, mean, sum, sum_rows, top_k
from gml.ops.rope import rope
from gml.ops.softmax import diag_mask_inf, soft_max
from gml.ops.ssm import ssm_conv, ssm_scan
from gml.ops.unary import (
    ceil,
    elu,
    floor,
    gelu,
    gelu_erf,
    gelu_quick,
    hardsigmoid,
    hardswish,
    relu,
    round,
    sgn,
    sigmoid,
    silu,
    softplus,
    step,
    tanh,
    trunc,
)
from gml.ops.views import permute, reshape, transpose, view

__all__ = [
    "abs", "add", "arange", "argmax", "argsort", "cast", "ceil", "clamp", "concat", "cont", "conv_1d", "conv_2d",
    "cos", "cpy", "cross_entropy_loss", "cumsum", "diag_mask_inf", "div", "dup", "elu", "exp", "flash_attn_ext",
    "floor", "geglu", "geglu_erf", "geglu_erf_split", "geglu_quick", "geglu_quick_split", "geglu_split", "gelu",
    "gelu_erf", "gelu_quick", "get_rows", "group_norm", "hardsigmoid", "hardswish", "im2col", "l2_norm", "log",
    "map_custom", "mean", "mul", "mul_mat", "mul_mat_id", "neg", "norm", "out_prod", "pad", "pad_ext", "permute",
    "pool_1d", "pool_2d", "reglu", "reglu_split", "relu", "repeat", "reshape", "rms_norm", "rope", "round", "scale",
    "scale_bias", "set", "set_rows", "sgn", "sigmoid", "silu", "sin", "soft_max", "softplus", "sqr", "sqrt",
    "ssm_conv", "ssm_scan", "step", "sub", "sum", "sum_rows", "swiglu", "swiglu_split", "tanh", "timestep_embedding",
    "top_k", "transpose", "trunc", "view",
]  # fmt: skip
