"""Choosing the next token from logits: llama.cpp's default chain.

Arrives: float32 logits over the vocabulary; leaves: one id. The order is that of llama.cpp's `common_sampler_init`:
logit bias, penalties, top_k, typical, top_p, min_p, temperature, and a draw from what is left; with llama.cpp's
defaults (`common.h`, `common_params_sampling`). Everything is computed on whole arrays, and after the cut to `top_k` on
a few dozen candidates.

Draws come from numpy's PCG64 bit generator, whose stream is fixed for a seed on every platform and numpy version: 53
bits of one raw 64-bit output per token. Probabilities are float64, and equal logits are ordered by id, so a seed gives
the same ids wherever the logits are the same. Next module: `models/generate.py`.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gml.errors import Error, UsageError
from gml.records import dataclass, field


@dataclass(frozen=True)
class SamplerParams:
    """What shapes the choice; names, meaning and defaults as in llama.cpp.

    seed                 of the random generator; None: a fresh one (see `Sampler.seed`)
    temperature          divides the logits; 0 or less: always the most probable token (greedy)
    top_k                keep the k most probable tokens; 0 or less: all
    top_p                keep the fewest tokens whose probabilities sum to at least p; 1: all
    min_p                keep tokens at least p times as probable as the most probable; 0: all
    typical_p            locally typical sampling (arXiv 2202.00666); 1: off
    repeat_last_n        how many of the last tokens the penalties see; 0: none, -1: all
    repeat_penalty       divides positive and multiplies negative logits of tokens seen; 1: off
    frequency_penalty    subtracted once for each time a token was seen
    presence_penalty     subtracted once if a token was seen
    logit_bias           added to the logits of these ids; -inf bans a token
    ignore_eos           never choose an end-of-generation token

    Raises `UsageError` naming the allowed range.
    """

    seed: int | None = None
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.seed is not None:
            _check("seed", self.seed, 0, 2**64 - 1, whole=True)
        _check("temperature", self.temperature, -math.inf, 1e6)
        _check("top_k", self.top_k, -(2**31), 2**31 - 1, whole=True)
        _check("top_p", self.top_p, 0.0, 1.0)
        _check("min_p", self.min_p, 0.0, 1.0)
        _check("typical_p", self.typical_p, 0.0, 1.0)
        _check("repeat_last_n", self.repeat_last_n, -1, 2**31 - 1, whole=True)
        _check("repeat_penalty", self.repeat_penalty, 1e-3, 1e3)
        _check("frequency_penalty", self.frequency_penalty, -1e3, 1e3)
        _check("presence_penalty", self.presence_penalty, -1e3, 1e3)
        for token, bias in self.logit_bias.items():
            _check("token of logit_bias", token, 0, 2**31 - 1, whole=True)
            if not -math.inf <= bias < math.inf:
                raise UsageError(f"logit_bias of token {token} must be a finite number or -inf, found {bias}")

    @property
    def penalises(self) -> bool:
        """Whether tokens seen before change the logits."""
        return self.repeat_last_n != 0 and (
            self.repeat_penalty != 1.0 or self.frequency_penalty != 0.0 or self.presence_penalty != 0.0
        )


def _check(name: str, value: float, low: float, high: float, whole: bool = False) -> None:
    kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
    if not isinstance(value, kinds) or isinstance(value, bool) or not low <= value <= high:
        kind = "a whole number" if whole else "a number"
        low_text, high_text = (f"{x}" if whole else f"{x:g}" for x in (low, high))
        bounds = f"at most {high_text}" if low == -math.inf else f"from {low_text} to {high_text}"
        raise UsageError(f"{name} must be {kind} {bounds}, found {value!r}")


class Sampler:
    """Chooses ids, remembering those it was told of.

    params   see `SamplerParams`
    eog_ids  the vocabulary's end-of-generation tokens, for `ignore_eos`
    """

    def __init__(self, params: SamplerParams | None = None, *, eog_ids: Iterable[int] = ()) -> None:
        self.params = params = params or SamplerParams()
        #: the seed in use, to repeat a run that was not given one
        self.seed = secrets.randbits(32) if params.seed is None else int(params.seed)
        self._bias = dict(params.logit_bias)
        if params.ignore_eos:
            self._bias.update(dict.fromkeys(eog_ids, -math.inf))
        self._counts: Counter[int] = Counter()
        self._recent: deque[int] = deque()
        #: the random generator, made when something is drawn: numpy.random takes a while to import
        self._bits: Any = None

    def reset(self) -> None:
        """Forget all tokens and start the random generator again."""
        self._counts.clear()
        self._recent.clear()
        self._bits = None

    def accept(self, id: int) -> None:
        """Remember a token (of the prompt or generated) for the penalties."""
        if not self.params.penalises:
            return
        self._recent.append(id)
        self._counts[id] += 1
        if 0 < self.params.repeat_last_n < len(self._recent):
            oldest = self._recent.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]

    def sample(self, logits: np.ndarray) -> int:
        """The next id, given float32 logits of shape [n_vocab]; they are not changed.

        Raises `Error` when no token can be chosen: NaN or +inf among the logits, or every token banned.
        """
        params = self.params
        logits = np.asarray(logits, dtype=np.float32)
        if logits.ndim != 1 or not logits.size:
            raise Error(f"expected logits of shape [n_vocab], found {list(logits.shape)}")
        logits = self._penalised(self._biased(logits))
        top = int(np.argmax(logits))
        _require_finite(logits, top)
        if params.temperature <= 0 and params.typical_p >= 1:
            return top
        ids, values = cut_top_k(logits, params.top_k)
        ids, values = cut_typical(ids, values, params.typical_p)
        if params.temperature <= 0:
            return int(ids[0])
        ids, values = cut_top_p(ids, values, params.top_p)
        ids, values = cut_min_p(ids, values, params.min_p)
        # a temperature next to 0 must stay a division: overflow to -inf is right, the largest value stays 0
        with np.errstate(over="ignore"):
            values = (values - values[0]) / params.temperature
        return int(ids[self._draw(softmax(values))])

    def _biased(self, logits: np.ndarray) -> np.ndarray:
        if not self._bias:
            return logits
        ids = np.fromiter(self._bias.keys(), dtype=np.int64)
        if ids.max() >= logits.size:
            raise UsageError(f"logit_bias: token {ids.max()} is outside the vocabulary of {logits.size}")
        logits = logits.copy()
        logits[ids] += np.fromiter(self._bias.values(), dtype=np.float32)
        return logits

    def _penalised(self, logits: np.ndarray) -> np.ndarray:
        """llama.cpp's `llama_sampler_penalties`: counts over the last `repeat_last_n` tokens."""
        if not self._counts:
            return logits
        params = self.params
        ids = np.fromiter(self._counts.keys(), dtype=np.int64)
        counts = np.fromiter(self._counts.values(), dtype=np.float32)
        inside = ids < logits.size
        ids, counts = ids[inside], counts[inside]
        seen = logits[ids]
        seen = np.where(seen <= 0, seen * np.float32(params.repeat_penalty), seen / np.float32(params.repeat_penalty))
        logits = logits.copy()
        logits[ids] = seen - counts * np.float32(params.frequency_penalty) - np.float32(params.presence_penalty)
        return logits

    def _draw(self, probabilities: np.ndarray) -> int:
        """An index, drawn with these probabilities."""
        if self._bits is None:
            self._bits = np.random.PCG64(self.seed)
        u = (int(self._bits.random_raw()) >> 11) * 2.0**-53
        bounds = np.cumsum(probabilities)
        return min(int(np.searchsorted(bounds, u * bounds[-1], side="right")), len(bounds) - 1)


def _require_finite(logits: np.ndarray, top: int) -> None:
    # argmax finds the first NaN if there is one, else the largest value
    largest = logits[top]
    if np.isnan(largest) or largest == np.inf:
        raise Error(
            f"the logit of token {top} is {largest}: the model's weights or the backend are at fault; "
            "compare with --backend reference, and check the model file"
        )
    if largest == -np.inf:
        raise Error("every token is banned (all logits are -inf); loosen logit_bias or ignore_eos")


def softmax(values: np.ndarray) -> np.ndarray:
    """Probabilities (float64) of logits; at least one of them must be finite."""
    weights = np.exp(values.astype(np.float64) - values.max())
    return weights / weights.sum()


def cut_top_k(logits: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids and logits (float64) of the `k` largest, descending, equal ones by ascending id; all of them when k <= 0."""
    n = logits.size
    k = k if 0 < k < n else n
    ids = _candidates(logits, k) if k < n else np.arange(n)
    ids = ids[_descending(logits[ids])[:k]]
    values = logits[ids].astype(np.float64)
    n_allowed = int(np.searchsorted(-values, np.inf))
    return ids[:n_allowed], values[:n_allowed]


def _descending(values: np.ndarray) -> np.ndarray:
    """The order that sorts float32 values descending, equal ones as they stand.

    Value and place are packed into one integer each: numpy sorts those with vector instructions, ten times as fast as a
    stable argsort. The bits of floats order like integers once those of negative ones are flipped; + 0 unites -0 and 0.
    """
    bits = (values + np.float32(0)).view(np.int32)
    rank = ~(bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64)
    return np.sort((rank << 32) | np.arange(values.size)) & 0xFFFFFFFF


def _candidates(logits: np.ndarray, k: int) -> np.ndarray:
    """Ascending ids of a few logits, the k largest (with all that equal the last of them) included.

    The vocabulary is cut into blocks; the k-th largest of the blocks' maxima is a value that at least k logits reach.
    That is one pass over the vocabulary at memory speed, where a partition of all of it takes ten times as long.
    """
    n_blocks = 4096
    if logits.size < 4 * n_blocks or k > n_blocks // 2:
        bound = np.partition(logits, logits.size - k)[logits.size - k]
        return np.flatnonzero(logits >= bound)
    n_whole = logits.size - logits.size % n_blocks
    maxima = np.concatenate([logits[:n_whole].reshape(-1, n_blocks).max(axis=0), logits[n_whole:]])
    bound = np.partition(maxima, maxima.size - k)[maxima.size - k]
    return np.flatnonzero(logits >= bound)


def cut_typical(ids: np.ndarray, values: np.ndarray, p: float) -> tuple[np.ndarray, np.ndarray]:
    """Keep tokens whose surprise is nearest to the entropy until their probabilities sum to more than `p`; 1: all."""
    if p >= 1:
        return ids, values
    probabilities = softmax(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        surprise = -np.log(probabilities)
        entropy = np.nansum(probabilities * surprise)
    order = np.argsort(np.abs(surprise - entropy), kind="stable")
    n_kept = int(np.searchsorted(np.cumsum(probabilities[order]), p, side="right")) + 1
    kept = np.sort(order[:n_kept])
    return ids[kept], values[kept]


def cut_top_p(ids: np.ndarray, values: np.ndarray, p: float) -> tuple[np.ndarray, np.ndarray]:
    """Keep the first of these descending tokens, until their probabilities sum to at least `p`; 1: all."""
    if p >= 1:
        return ids, values
    n_kept = int(np.searchsorted(np.cumsum(softmax(values)), p, side="left")) + 1
    return ids[:n_kept], values[:n_kept]


def cut_min_p(ids: np.ndarray, values: np.ndarray, p: float) -> tuple[np.ndarray, np.ndarray]:
    """Keep the first of these descending tokens, while they are at least `p` times as probable as the first; 0: all."""
    if p <= 0:
        return ids, values
    n_kept = int(np.searchsorted(-values, -(values[0] + math.log(p)), side="right"))
    return ids[:n_kept], values[:n_kept]
