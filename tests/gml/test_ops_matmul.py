"""Matrix products beyond the samples: sizes of real models, every block format, views, memory, refusals."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_conformance import assert_near, leaves, normal, value

import gml
from gml.ops.base import SampleBuilder
from gml.quants.base import all_types
from gml.tensor import Tensor

#: those that the other package does not decode
UNKNOWN = ("Q8_1", "Q8_K", "Q1_0", "Q2_0")
BLOCKS = [pytest.param(t, id=t.name) for t in all_types() if not t.is_scalar and t.name not in UNKNOWN]


@pytest.mark.parametrize("n_tokens", [1, 7, 33])
def test_sizes_of_a_real_model(n_tokens: int) -> None:
    a, b = normal(1, 1536, 576), normal(2, n_tokens, 576)
    expected = b.astype(np.float64) @ a.astype(np.float64).T
    assert_near(value(gml.mul_mat(*leaves(a, b))), expected)


@pytest.mark.parametrize("dtype", BLOCKS)
def test_block_formats_multiply_as_another_package_decodes_them(dtype: gml.DType) -> None:
    gguf = pytest.importorskip("gguf", reason="gguf, the reference decoder, is not installed (extra `test`)")
    s = SampleBuilder(5)
    n_expert, n, k = 3, 11, 512
    w = s.blocks(dtype, k, n, n_expert)
    if dtype.name == "MXFP4":
        # random exponents reach 2^127; those of real weights do not
        blocks = w.bytes().view(dtype.numpy)
        blocks["e"] = s.random.integers(115, 130, size=blocks.shape)
    if dtype.name == "IQ1_M":
        # an f16 scale in four pieces, of which the highest is the sign and most of the exponent
        blocks = w.bytes().view(dtype.numpy)
        blocks["scales"][..., 3] = (blocks["scales"][..., 3] & 0xFFF) | 0x2000
    kind = gguf.GGMLQuantizationType[dtype.name]
    matrices = gguf.dequantize(w.bytes().reshape(n_expert * n, -1), kind).reshape(n_expert, n, k).astype(np.float64)
    x = normal(3, 2 * n_expert, 4, k)
    shared = value(gml.mul_mat(w, s.array(x)))
    assert_near(shared, np.stack([x[i] @ matrices[i // 2].T for i in range(2 * n_expert)]))
    ids = np.array([[2, 0], [1, 1], [0, 2], [2, 2]], np.int32)
    chosen = value(gml.mul_mat_id(w, s.array(x[0][:, None]), s.array(ids)))
    assert_near(chosen, np.array([[matrices[e] @ x[0, t] for e in row] for t, row in enumerate(ids)]))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_sizes_and_layouts(data: st.DataObject) -> None:
    """Batches shared by division, and sources that are views with every order of axes."""
    small = st.integers(0, 5)
    k, n, m = data.draw(small), data.draw(small), data.draw(small)
    n2, n3, r2, r3 = (data.draw(st.integers(1, 3)) for _ in range(4))
    a, b = normal(k + 1, n3, n2, n, k), normal(m + 7, n3 * r3, n2 * r2, m, k)

    def laid_out(array: np.ndarray) -> Tensor:
        """The same values behind a permuted view."""
        axes = data.draw(st.permutations(range(4)))
        (stored,) = leaves(np.ascontiguousarray(array.transpose([3 - axes[3 - i] for i in range(4)])))
        return gml.permute(stored, *axes)

    x, y = laid_out(a), laid_out(b)
    np.testing.assert_array_equal(value(x), a)
    expected = np.empty((n3 * r3, n2 * r2, m, n))
    for i, j in np.ndindex(expected.shape[:2]):
        expected[i, j] = b[i, j].astype(np.float64) @ a[i // r3, j // r2].T
    assert_near(value(gml.mul_mat(x, y)), expected)
    if n and m:
        as_outer = gml.out_prod(gml.transpose(x), gml.transpose(y))
        assert_near(value(as_outer), expected)


def test_decoded_weights_are_not_copied() -> None:
    """A step allocates the activations, not the weights again."""
    s = SampleBuilder()
    w = s.blocks(gml.quants.by_name("Q4_0"), 1024, 2048)
    x = s.context.input("x", gml.F32, [1024, 16]).set(normal(1, 16, 1024))
    program = gml.compile(gml.mul_mat(w, x), "reference")
    program.run()
    tracemalloc.start()
    try:
        program.run()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20  # the weights decoded are 8 MiB


def test_experts_take_shared_or_own_columns() -> None:
    """`b` with one column per token is `b` with that column repeated."""
    w, x = normal(1, 4, 9, 16), normal(2, 5, 1, 16)
    ids = np.array([[0, 3], [1, 1], [2, 0], [3, 2], [0, 1]], np.int32)
    one = value(gml.mul_mat_id(*leaves(w, x, ids)))
    repeated = value(gml.mul_mat_id(*leaves(w, np.repeat(x, 2, axis=1), ids)))
    np.testing.assert_array_equal(one, repeated)
    assert_near(one, np.einsum("tunk,tk->tun", w[ids].astype(np.float64), x[:, 0].astype(np.float64)))


@pytest.mark.parametrize("bad", [-1, 4, 2**31 - 1])
def test_an_expert_that_is_not_there_is_refused(bad: int) -> None:
    product = gml.mul_mat_id(*leaves(normal(1, 4, 3, 8), normal(2, 2, 1, 8), np.array([[0], [bad]], np.int32)))
    with pytest.raises(gml.GraphError, match=r"ids must be 0 to 3, found .*-?\d+"):
        gml.compile(product, "reference").run()


def leaf(*ne: Any, type: gml.DType = gml.F32) -> Tensor:
    return Tensor(type, ne, role="input")


REFUSED = {
    "rows": (lambda: gml.mul_mat(leaf(8, 3), leaf(7, 3)), ["8 and 7"]),
    "batch": (lambda: gml.mul_mat(leaf(8, 3, 2), leaf(8, 3, 3)), ["ne[2]", "3 and 2"]),
    "batch_3": (lambda: gml.mul_mat(leaf(8, 3, 1, 2), leaf(8, 3, 1, 3)), ["ne[3]", "3 and 2"]),
    "swapped_batch": (lambda: gml.mul_mat(leaf(8, 3, 4), leaf(8, 3, 2)), ["ne[2]", "2 and 4"]),
    "integers": (lambda: gml.mul_mat(leaf(8, 3, type=gml.I32), leaf(8, 3)), ["I32"]),
    "block_activations": (lambda: gml.mul_mat(leaf(32, 3), leaf(32, 3, type=gml.quants.by_name("Q8_0"))), ["Q8_0"]),
    "run_time": (lambda: gml.mul_mat(leaf(gml.Dim("n", 8), 3), leaf(gml.Dim("m", 8), 3)), ["n and m"]),
    "experts_columns": (lambda: gml.mul_mat_id(leaf(8, 3, 4), leaf(8, 2, 5), leaf(3, 5, type=gml.I32)), ["3 or 1"]),
    "experts_tokens": (lambda: gml.mul_mat_id(leaf(8, 3, 4), leaf(8, 1, 5), leaf(2, 6, type=gml.I32)), ["6"]),
    "experts_type": (lambda: gml.mul_mat_id(leaf(8, 3, 4), leaf(8, 1, 5), leaf(2, 5)), ["ids must be I32", "F32"]),
    "outer_rows": (lambda: gml.out_prod(leaf(8, 3), leaf(8, 4)), ["3 and 4"]),
}


@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused_with_its_sizes(call: Any, words: list[str]) -> None:
    with pytest.raises(gml.ShapeError) as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_run_time_sizes_pass_through() -> None:
    n, m = gml.Dim("n", 8), gml.Dim("m", 8)
    assert gml.mul_mat(leaf(64, n, 3), leaf(64, m, 9)).ne == (n, m, 9, 1)
    assert gml.mul_mat(leaf(64, 5, 1), leaf(64, m, 2 * n)).ne == (5, m, 2 * n, 1)
    assert gml.mul_mat(leaf(64, 5, n), leaf(64, m, 3 * n)).ne == (5, m, 3 * n, 1)
    assert gml.mul_mat_id(leaf(8, 3, 4), leaf(8, 1, n), leaf(2, n, type=gml.I32)).ne == (3, 2, n, 1)
    assert gml.out_prod(leaf(n, 3), leaf(m, 3)).ne == (n, m, 1, 1)
