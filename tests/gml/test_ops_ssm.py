"""State-space ops and the loss: torch where it has them, other algorithms and invariances where it has not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_conformance import assert_near, leaves, normal, torch_or_skip, value

import gml
from gml.tensor import Tensor


@pytest.fixture(scope="module")
def torch() -> Any:
    """torch, or a skip that names the extra."""
    return torch_or_skip()


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x.astype(np.float64))


class Scan:
    """Random sources of a scan in numpy's order."""

    def __init__(self, d_state: int, dim: int, n_head: int, n_tokens: int, n_seqs: int = 1, n_group: int = 1) -> None:
        self.state = normal(1, n_seqs, n_head, dim, d_state)
        self.x = normal(2, n_seqs, n_tokens, n_head, dim)
        self.dt = normal(3, n_seqs, n_tokens, n_head)
        self.decay = -np.abs(normal(4, n_head, 1)) - 0.1
        self.b, self.c = (normal(i, n_seqs, n_tokens, n_group, d_state) for i in (5, 6))
        self.ids = np.arange(n_seqs, dtype=np.int32)

    def run(self, tokens: slice = slice(None), **other: Any) -> tuple[np.ndarray, np.ndarray]:
        """y [n_seqs, n_tokens, n_head, dim] and the new states of some of the tokens, with other sources if given."""
        s = {**vars(self), **other}
        x, dt, b, c = (np.ascontiguousarray(s[n][:, tokens]) for n in ("x", "dt", "b", "c"))
        flat = value(gml.ssm_scan(*leaves(s["state"], x, dt, s["decay"], b, c, s["ids"]))).ravel()
        states = (len(s["ids"]), *s["state"].shape[1:])
        assert flat.size == x.size + np.prod(states)
        return flat[: x.size].reshape(x.shape), flat[x.size :].reshape(states)


def test_torch_short_convolution(torch: Any) -> None:
    """ssm_conv is a depthwise convolution."""
    x, c = normal(1, 3, 17, 4 - 1 + 9), normal(2, 17, 4)
    wide = torch.nn.functional.conv1d(
        torch.from_numpy(x).double(), torch.from_numpy(c[:, None]).double(), groups=c.shape[0]
    )
    assert_near(value(gml.ssm_conv(*leaves(x, c))), wide.transpose(1, 2)[None].numpy())


def test_convolution_in_pieces() -> None:
    """The last d_conv - 1 elements carried over, the pieces are the whole."""
    x, c = normal(1, 5, 3 + 10), normal(2, 5, 4)
    whole = value(gml.ssm_conv(*leaves(x, c)))
    pieces = [value(gml.ssm_conv(*leaves(x[:, i : 3 + j], c))) for i, j in ((0, 1), (1, 4), (4, 10))]
    np.testing.assert_array_equal(np.concatenate(pieces, axis=2), whole)


@pytest.mark.parametrize("n_group", [1, 2, 6])
def test_mamba_2_is_attention_with_decay(n_group: int) -> None:
    """The dual form: y_t = sum over j <= t of (C_t . B_j) exp(sum of dt A over j+1..t) dt_j x_j, no state anywhere."""
    n, n_head = 12, 6
    scan = Scan(8, 4, n_head, n, n_seqs=2, n_group=n_group)
    y, _ = scan.run(state=np.zeros_like(scan.state))
    step = softplus(scan.dt)
    b, c = (np.repeat(z.astype(np.float64), n_head // n_group, axis=2) for z in (scan.b, scan.c))
    decays = np.cumsum(step * scan.decay[:, 0], axis=1)
    gaps = np.tril(np.ones((n, n)))[None, None] * np.exp(
        np.minimum(decays.swapaxes(1, 2)[..., :, None] - decays.swapaxes(1, 2)[..., None, :], 0)
    )
    scores = np.einsum("sthn,sjhn->shtj", c, b) * gaps
    assert_near(y, np.einsum("shtj,sjh,sjhd->sthd", scores, step, scan.x))


def test_mamba_1_is_one_recurrence_per_state_element() -> None:
    """Heads of one element, a decay for each state element: h_T is a weighted sum of the inputs, in closed form."""
    n, n_inner, d_state = 9, 12, 5
    scan = Scan(d_state, 1, n_inner, n)
    decay = -np.abs(normal(7, n_inner, d_state)) - 0.1
    _, states = scan.run(decay=decay)
    step = softplus(scan.dt)[0]
    after = step.sum(0) - np.cumsum(step, axis=0)  # what each token's input still has to go through
    expected = np.einsum(
        "thn,th,th,tn->hn", np.exp(after[:, :, None] * decay), step, scan.x[0, :, :, 0], scan.b[0, :, 0]
    ) + scan.state[0, :, 0] * np.exp(step.sum(0)[:, None] * decay)
    assert_near(states, expected[None, :, None])


def test_a_decay_per_head_is_a_decay_per_element_of_equal_ones() -> None:
    scan = Scan(8, 4, 6, 5, n_seqs=2, n_group=3)
    for one, other in zip(scan.run(), scan.run(decay=np.repeat(scan.decay, 8, axis=1)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("cut", [0, 1, 4, 7])
def test_a_prompt_in_two_parts(cut: int) -> None:
    """The states of the first part start the second."""
    scan = Scan(8, 3, 4, 7, n_seqs=2, n_group=2)
    y, states = scan.run()
    y_1, between = scan.run(slice(0, cut))
    y_2, end = scan.run(slice(cut, None), state=between.astype(np.float32))
    assert_near(np.concatenate([y_1, y_2], axis=1), y)
    assert_near(end, states)


def test_sequences_take_the_states_that_ids_name() -> None:
    scan = Scan(4, 3, 2, 5, n_seqs=3)
    slots = normal(9, 7, *scan.state.shape[1:])
    ids = np.array([6, 0, 3], np.int32)
    for one, other in zip(scan.run(state=slots, ids=ids), scan.run(state=slots[ids]), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("bad", [-1, 3, 2**31 - 1])
def test_a_state_that_is_not_there_is_refused(bad: int) -> None:
    scan = Scan(4, 3, 2, 5, n_seqs=3)
    with pytest.raises(gml.GraphError, match=r"ids must be 0 to 2, found .*-?\d+"):
        scan.run(ids=np.array([0, bad, 1], np.int32))


def test_large_steps_stay_finite() -> None:
    """softplus neither overflows nor loses its tail; a huge step forgets the state."""
    scan = Scan(4, 2, 2, 1)
    for raw in (-90.0, -30.0, 19.9, 20.1, 90.0, 1e4):
        y, states = scan.run(dt=np.full_like(scan.dt, raw))
        assert np.isfinite(y).all()
        assert np.isfinite(states).all()
        step = softplus(np.array(raw))
        expected = scan.state * np.exp(step * scan.decay[:, 0].astype(np.float64))[None, :, None, None] + (
            step * scan.x[:, 0, :, :, None] * scan.b[:, 0, 0][:, None, None, :]
        )
        assert_near(states, expected)


# -- the loss ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1.0, 300.0])
def test_torch_cross_entropy(torch: Any, size: float) -> None:
    logits, wanted = normal(1, 40, 33) * size, np.abs(normal(2, 40, 33))
    wanted /= wanted.sum(1, keepdims=True)
    expected = torch.nn.functional.cross_entropy(torch.from_numpy(logits).double(), torch.from_numpy(wanted).double())
    assert_near(value(gml.cross_entropy_loss(*leaves(logits, wanted))), expected.numpy())


def test_torch_cross_entropy_of_class_numbers(torch: Any) -> None:
    logits, classes = normal(1, 2, 3, 5, 9), np.random.default_rng(2).integers(0, 9, (2, 3, 5))
    flat = torch.from_numpy(logits.reshape(-1, 9)).double()
    expected = torch.nn.functional.cross_entropy(flat, torch.from_numpy(classes.ravel()))
    one_hot = np.eye(9, dtype=np.float32)[classes]
    assert_near(value(gml.cross_entropy_loss(*leaves(logits, one_hot))), expected.numpy())


# -- refusals ----------------------------------------------------------------------------------------------------------


def leaf(*ne: Any, type: gml.DType = gml.F32) -> Tensor:
    return Tensor(type, ne, role="input")


def scan_with(**other: Tensor) -> Tensor:
    """A scan of good sources but for `other`: d_state 8, dim 4, 6 heads, 5 tokens, 2 sequences, 3 groups."""
    good = {
        "s": leaf(8, 4, 6, 2), "x": leaf(4, 6, 5, 2), "dt": leaf(6, 5, 2), "A": leaf(1, 6), "B": leaf(8, 3, 5, 2),
        "C": leaf(8, 3, 5, 2), "ids": leaf(2, type=gml.I32),
    }  # fmt: skip
    return gml.ssm_scan(**{**good, **other})


REFUSED = {
    "conv_channels": (lambda: gml.ssm_conv(leaf(7, 5), leaf(4, 6)), ["[d_conv, 5]", "[4, 6, 1, 1]", "[7, 5, 1, 1]"]),
    "conv_short": (lambda: gml.ssm_conv(leaf(2, 5), leaf(4, 5)), ["3 elements", "found 2"]),
    "conv_run_time": (lambda: gml.ssm_conv(leaf(gml.Dim("n", 8), 5), leaf(4, 5)), ["3 elements", "found n"]),
    "x": (lambda: scan_with(x=leaf(5, 6, 5, 2)), ["[4, 6, n_tokens, n_seqs]", "[5, 6, 5, 2]"]),
    "dt": (lambda: scan_with(dt=leaf(6, 4, 2)), ["[6, 5, 2]", "[6, 4, 2, 1]"]),
    "A": (lambda: scan_with(A=leaf(2, 6)), ["8", "[2, 6, 1, 1]"]),
    "B_and_C": (lambda: scan_with(B=leaf(8, 2, 5, 2)), ["[8, 2, 5, 2]", "[8, 3, 5, 2]"]),
    "groups": (lambda: scan_with(B=leaf(8, 4, 5, 2), C=leaf(8, 4, 5, 2)), ["divides 6", "[8, 4, 5, 2]"]),
    "state": (lambda: scan_with(s=leaf(7, 4, 6, 2)), ["7", "8"]),
    "ids": (lambda: scan_with(ids=leaf(3, type=gml.I32)), ["I32[2]", "[3, 1, 1, 1]"]),
    "ids_type": (lambda: scan_with(ids=leaf(2)), ["I32[2]", "F32"]),
    "types": (lambda: scan_with(x=leaf(4, 6, 5, 2, type=gml.I32)), ["x must be F32", "I32"]),
    "loss": (lambda: gml.cross_entropy_loss(leaf(7, 3), leaf(7, 1)), ["[7, 3, 1, 1]", "[7, 1, 1, 1]"]),
    "loss_type": (lambda: gml.cross_entropy_loss(leaf(7, 3), leaf(7, 3, type=gml.I32)), ["I32"]),
}


@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_does_not_fit_is_refused_with_its_sizes(call: Any, words: list[str]) -> None:
    with pytest.raises(gml.ShapeError) as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)
