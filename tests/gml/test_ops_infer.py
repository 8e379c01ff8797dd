"""Declarations are complete, and whatever does not fit is refused with a `ShapeError` that names the op."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import op_truth
import pytest

import gml
from gml.dtypes import SCALARS
from gml.ops.base import OpDef, SampleBuilder, registry
from gml.quants.base import QuantType, all_types
from gml.tensor import Tensor

OPS = [pytest.param(op, id=op.name) for op in registry.values()]
#: ops of these files have a row in `op_truth.py`
WITH_TRUTH = (
    "elementwise",
    "unary",
    "glu",
    "reduce",
    "norm",
    "views",
    "movement",
    "indexing",
    "custom",
    "create",
    "matmul",
)


@pytest.mark.parametrize("op", OPS)
def test_every_op_is_declared_completely(op: OpDef) -> None:
    names = [s.name for s in op.samples]
    assert len(names) >= 3
    assert len(set(names)) == len(names), f"two samples of {op.name} have one name"
    assert callable(op.reference)
    assert callable(op.infer)
    if op.name in gml.__all__:
        function = getattr(gml, op.name)
        doc = inspect.getdoc(function) or ""
        assert len(doc) > 20
        assert function.__annotations__.get("return") == "Tensor"


@pytest.mark.parametrize("op", [op for op in registry.values() if op.infer.__module__.split(".")[-1] in WITH_TRUTH])
def test_every_op_of_these_files_has_a_second_meaning_and_a_public_function(op: OpDef) -> None:
    assert op.name in gml.__all__
    assert op.name in op_truth.TRUTH or op.name == "view"


@pytest.mark.parametrize("op", OPS)
def test_samples_cover_the_awkward_layouts(op: OpDef) -> None:
    """Each op with sources has samples over views, with a size 0, and with a run-time size."""
    if op.infer.__module__.split(".")[-1] not in WITH_TRUTH:
        pytest.skip("sampled by its own tests")
    made = [sample.make(SampleBuilder()) for sample in op.samples]
    sources = [s for tensor in made for s in tensor.src]
    if not sources:
        return
    assert any(s.view_of is not None for s in sources)
    assert any(0 in t.ne for t in made + sources)
    assert any(t.dims for t in made + sources)


#: a block format that is encoded by nobody, whether or not gml's own are there
BLOCKS = QuantType("BLOCKS", 9999, 32, 34, [("d", "<f2"), ("codes", "i1", (32,))])


def attributes(tensor: Tensor) -> dict[str, Any]:
    """What the tensor's op was called with."""
    return {f.name: getattr(tensor.attrs, f.name) for f in dataclasses.fields(tensor.attrs)}


def spoilt(tensor: Tensor) -> list[Tensor]:
    """Leaves like `tensor` with another type, other sizes, or one dimension more or less."""
    ne = tensor.ne
    kinds = [Tensor(t, (t.block_size * 2, 3), role="constant") for t in (*all_types(), BLOCKS)]
    kinds += [Tensor(t, ne, role="constant") for t in SCALARS]
    shapes = [ne[1:] + ne[:1], (*ne[:3], 5), (ne[0], 5, *ne[2:]), (ne[0] + 1, *ne[1:]), (0, 0, 0, 0), (1, 1, 1, 1)]
    shapes += [(gml.Dim("odd", max=7, min=0), *ne[1:]), (*ne[:3], gml.Dim("odd", max=7)), (64, 64, 2, 2)]
    return kinds + [Tensor(tensor.type if tensor.type.is_scalar else gml.F32, s, role="input") for s in shapes]


@pytest.mark.parametrize("op", OPS)
def test_sources_that_do_not_fit_are_refused_with_a_shape_error(op: OpDef) -> None:
    """Whatever source is replaced: the call gives a tensor or raises `ShapeError`, never anything else."""
    refusals, made = 0, op.samples[0].make(SampleBuilder())
    for sample in op.samples:
        made = sample.make(SampleBuilder())
        attrs = attributes(made)
        for i, source in enumerate(made.src):
            for other in spoilt(source):
                src = [*made.src[:i], other, *made.src[i + 1 :]]
                try:
                    result = op(*src, **attrs)
                except gml.ShapeError as error:
                    refusals += 1
                    assert str(error).startswith(op.name)
                    assert "\n" not in str(error)
                else:
                    assert isinstance(result, Tensor)
    # these take any tensor there is
    if made.src and op.name not in ("dup", "map_custom", "cast"):
        assert refusals


@pytest.mark.parametrize("op", OPS)
def test_a_wrong_number_or_kind_of_sources_is_refused(op: OpDef) -> None:
    made = op.samples[0].make(SampleBuilder())
    attrs = attributes(made)
    if made.src:
        for bad in (2.0, None, np.ones(3), "x"):
            with pytest.raises(gml.ShapeError, match="must be a Tensor"):
                op(bad, *made.src[1:], **attrs)  # type: ignore[arg-type]
        with pytest.raises(gml.ShapeError):
            op(**attrs)
    many = [made.src[0] if made.src else Tensor(gml.F32, (1,))] * 40
    if not any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(op.infer).parameters.values()):
        with pytest.raises(gml.ShapeError, match="sources, found 40"):
            op(*many, **attrs)


X = Tensor(gml.F32, (8, 3), role="input")
STATE = Tensor(gml.F32, (8, 3), role="state")
CONSTANT = Tensor(gml.F32, (8, 3), role="constant")
IDS = Tensor(gml.I32, (3,), role="input")
N = gml.Dim("n", max=8)

BAD_CALLS: dict[str, Callable[[], object]] = {
    "operands_do_not_tile": lambda: gml.add(X, Tensor(gml.F32, (3,))),
    "scale_text": lambda: gml.scale(X, "2"),  # type: ignore[arg-type]
    "clamp_order": lambda: gml.clamp(X, 1.0, 0.0),
    "clamp_none": lambda: gml.clamp(X, None, 0.0),  # type: ignore[arg-type]
    "glu_odd": lambda: gml.swiglu(Tensor(gml.F32, (7,))),
    "glu_swapped": lambda: gml.swiglu(X, swapped=1),  # type: ignore[arg-type]
    "split_sizes": lambda: gml.swiglu_split(X, Tensor(gml.F32, (8,))),
    "argmax_dims": lambda: gml.argmax(Tensor(gml.F32, (2, 2, 2))),
    "argsort_order": lambda: gml.argsort(X, "up"),
    "top_k_large": lambda: gml.top_k(X, 9),
    "top_k_negative": lambda: gml.top_k(X, -1),
    "top_k_text": lambda: gml.top_k(X, "1"),  # type: ignore[arg-type]
    "top_k_bound": lambda: gml.top_k(Tensor(gml.F32, (N,)), 2),
    "norm_eps": lambda: gml.norm(X, eps=-1.0),
    "norm_eps_text": lambda: gml.rms_norm(X, eps="small"),  # type: ignore[arg-type]
    "groups": lambda: gml.group_norm(X, 0, eps=1e-5),
    "groups_dim": lambda: gml.group_norm(Tensor(gml.F32, (2, 2, N)), 1, eps=1e-5),
    "reshape_elements": lambda: gml.reshape(X, [5, 5]),
    "reshape_dim": lambda: gml.reshape(X, [8, N]),
    "reshape_strided": lambda: gml.reshape(gml.transpose(X), [24]),
    "reshape_five": lambda: gml.reshape(X, [1, 1, 1, 8, 3]),
    "reshape_float": lambda: gml.reshape(X, [2.0, 12]),  # type: ignore[list-item]
    "reshape_text": lambda: gml.reshape(X, "24"),  # type: ignore[arg-type]
    "view_end": lambda: gml.view(X, [8, 3], offset=4),
    "view_bound": lambda: gml.view(X, [8, N], nb=[32]),
    "view_negative": lambda: gml.view(X, [2], offset=-4),
    "view_stride": lambda: gml.view(X, [2, 2], nb=[-4]),
    "view_odd": lambda: gml.view(X, [2], offset=2),
    "view_strides": lambda: gml.view(X, [2], nb=[4, 4, 4, 4]),
    "view_nb": lambda: gml.view(X, [2], nb=7),  # type: ignore[arg-type]
    "view_huge": lambda: gml.view(X, [1 << 50]),
    "permute_twice": lambda: gml.permute(X, 0, 0, 1, 2),
    "permute_five": lambda: gml.permute(X, 0, 1, 2, 4),
    "permute_text": lambda: gml.permute(X, "0", 1, 2, 3),  # type: ignore[arg-type]
    "cont_sizes": lambda: gml.cont(X, [5]),
    "cont_number": lambda: gml.cont(3),  # type: ignore[arg-type]
    "cast_type": lambda: gml.cast(X, "F16"),  # type: ignore[arg-type]
    "cpy_elements": lambda: gml.cpy(X, Tensor(gml.F32, (8,), role="state")),
    "cpy_constant": lambda: gml.cpy(X, CONSTANT),
    "cpy_constant_view": lambda: gml.cpy(X, gml.reshape(CONSTANT, [24])),
    "repeat_sizes": lambda: gml.repeat(X, [12, 3]),
    "repeat_none": lambda: gml.repeat(X, None),  # type: ignore[arg-type]
    "concat_dim": lambda: gml.concat(X, X, 4),
    "concat_sizes": lambda: gml.concat(X, Tensor(gml.F32, (7, 3)), 1),
    "concat_types": lambda: gml.concat(X, Tensor(gml.F16, (8, 3)), 0),
    "pad_negative": lambda: gml.pad(X, -1),
    "pad_float": lambda: gml.pad(X, 1.5),  # type: ignore[arg-type]
    "pad_pairs": lambda: gml.pad_ext(X, 3),  # type: ignore[arg-type]
    "set_end": lambda: gml.set(X, Tensor(gml.F32, (8,)), offset=68),
    "set_overlap": lambda: gml.set(X, Tensor(gml.F32, (8, 2)), nb=[4]),
    "set_odd": lambda: gml.set(X, Tensor(gml.F32, (2,)), offset=2),
    "set_type": lambda: gml.set(X, Tensor(gml.F16, (2,))),
    "set_number": lambda: gml.set(X, 3),  # type: ignore[arg-type]
    "get_rows_ids": lambda: gml.get_rows(X, X),
    "get_rows_batch": lambda: gml.get_rows(X, Tensor(gml.I32, (3, 2))),
    "set_rows_width": lambda: gml.set_rows(STATE, Tensor(gml.F32, (7, 3)), IDS),
    "set_rows_ids": lambda: gml.set_rows(STATE, X, Tensor(gml.I32, (2,))),
    "set_rows_constant": lambda: gml.set_rows(CONSTANT, X, IDS),
    "arange_step": lambda: gml.arange(0, 1, 0),
    "arange_away": lambda: gml.arange(0, 1, -1),
    "arange_inf": lambda: gml.arange(0, float("inf")),
    "arange_huge": lambda: gml.arange(0, 1e30),
    "arange_text": lambda: gml.arange("0", 1),  # type: ignore[arg-type]
    "timesteps_dims": lambda: gml.timestep_embedding(X, 8),
    "timesteps_dim": lambda: gml.timestep_embedding(Tensor(gml.F32, (3,)), 0),
    "timesteps_period": lambda: gml.timestep_embedding(Tensor(gml.F32, (3,)), 8, max_period=0),
    "custom_function": lambda: gml.map_custom(3, X),  # type: ignore[arg-type]
    "custom_none": lambda: gml.map_custom(np.sin),
    "custom_type": lambda: gml.map_custom(np.sin, X, type="F32"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_bad_arguments_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(gml.ShapeError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400


def test_messages_name_op_tensors_and_sizes() -> None:
    a = Tensor(gml.F32, (8, 3), name="hidden")
    with pytest.raises(gml.ShapeError) as caught:
        gml.add(a, Tensor(gml.F16, (5,), name="bias"))
    for part in ("add(", "'hidden' F32[8, 3]", "'bias' F16[5]", "ne[0] is 8 of a and 5 of b"):
        assert part in str(caught.value)


def test_run_time_sizes_are_compared_as_polynomials() -> None:
    n, m = gml.Dim("n", max=8), gml.Dim("m", max=8)
    a = Tensor(gml.F32, (4, n))
    assert gml.add(a, Tensor(gml.F32, (4, n))).ne == (4, n, 1, 1)
    assert gml.reshape(a, [2, 2 * n]).ne == (2, 2 * n, 1, 1)
    assert gml.concat(a, Tensor(gml.F32, (4, m)), 1).ne == (4, n + m, 1, 1)
    assert gml.add(Tensor(gml.F32, (4, n * m)), a).ne[1] == n * m
    for other in (m, 2 * n, n + 1):
        with pytest.raises(gml.ShapeError):
            gml.add(a, Tensor(gml.F32, (4, other)))


def test_in_place_sources_have_the_results_type_in_some_sample() -> None:
    for op in registry.values():
        for i in op.in_place:
            made = [s.make(SampleBuilder()) for s in op.samples]
            assert any(t.src[i].ne == t.ne and t.src[i].type is t.type for t in made), op.name


def test_views_never_copy_and_copies_never_view() -> None:
    for op in registry.values():
        assert not (op.view and (op.copies or op.elementwise or op.writes is not None or op.in_place)), op.name
        for sample in itertools.islice(op.samples, 2):
            tensor = sample.make(SampleBuilder())
            assert (tensor.view_of is not None) == (op.view or op.writes is not None)
