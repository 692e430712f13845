"""BERT (Devlin et al. 2019) with its two pretraining heads, as google-research/bert modeling.py computes it.

Post-LayerNorm encoder, learned positions, LayerNorm epsilon 1e-12. The masked-word head runs at the masked positions
only, and so does what the last layer adds to them: nothing else of it is ever read.

Precision. Weights, their gradients and the optimizer's moments are fp32. Under autocast the matrix products (nn.Linear,
attention and the logits) take and give bf16; what they add to, the sum of word, position and type embeddings and every
residual after it, is fp32, and so is every LayerNorm, the softmax inside of attention, and the loss.

Shapes: B batch, S sequence, H hidden, A heads, V vocabulary, P positions asked for of each row, M masked words of the
whole batch. A batch comes in one of two forms, with the same results: padded, [B, S], of which a compiler for static
shapes can make use; or unpadded, the T tokens of all rows one after the other, of which the last layer is asked for Q.
`..` stands for [B, S] and [B, P], or for [T] and [Q]: all but attention is done token by token.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from model.layers.attention import Mix, Rows, padded, unpadded
from model.layers.dropout import Dropout
from pipeline.config import Architecture

LAYER_NORM_EPSILON = 1e-12
INITIAL_STD = 0.02
TOKEN_TYPES = 2
VOCABULARY_MULTIPLE = 64
"""words to which the product with the vocabulary is filled up: whole tiles for matrix units"""
APPROXIMATION = {"erf": "none", "tanh": "tanh"}
"""`Architecture.gelu` → torch's name"""


class Embeddings(nn.Module):
    """Word + position + type, normalised."""

    def __init__(self, architecture: Architecture, vocabulary_size: int) -> None:
        super().__init__()
        hidden = architecture.hidden
        self.word = nn.Embedding(vocabulary_size, hidden)
        self.position = nn.Embedding(architecture.max_positions, hidden)
        self.token_type = nn.Embedding(TOKEN_TYPES, hidden)
        self.norm = nn.LayerNorm(hidden, eps=LAYER_NORM_EPSILON)
        self.dropout = Dropout(architecture.dropout)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """int64 [..] each → float [.., H]. Without `position_ids` the tokens of a row are at 0, 1 … S − 1."""
        if position_ids is None:
            positions = self.position.weight[: input_ids.shape[1]]  # [S, H], broadcast over the batch
        else:
            positions = self.position(position_ids)
        return self.dropout(self.norm(self.word(input_ids) + positions + self.token_type(token_type_ids)))


class Attention(nn.Module):
    """Multi-head self-attention over the tokens that are not padding, and its output projection."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        hidden = architecture.hidden
        self.heads = architecture.heads
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, hidden)
        self.dropout = architecture.dropout

    def forward(self, asking: Tensor, hidden: Tensor, mix: Mix) -> Tensor:
        """What each of `asking` float [B, P, H] or [Q, H] finds in `hidden` float [.., H] → as `asking`.

        `mix` knows which tokens may look at which.
        """
        projected = self.query(asking), self.key(hidden), self.value(hidden)
        queries, keys, values = (each.unflatten(-1, (self.heads, -1)) for each in projected)  # [.., A, H / A]
        mixed = mix(queries, keys, values, self.dropout if self.training else 0.0)
        return self.output(mixed.flatten(-2))


class Layer(nn.Module):
    """Attention and feed-forward, each with dropout, residual and LayerNorm after it."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        hidden = architecture.hidden
        intermediate = architecture.intermediate or 4 * hidden
        self.attention = Attention(architecture)
        self.attention_norm = nn.LayerNorm(hidden, eps=LAYER_NORM_EPSILON)
        self.intermediate = nn.Linear(hidden, intermediate)
        self.output = nn.Linear(intermediate, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=LAYER_NORM_EPSILON)
        self.dropout = Dropout(architecture.dropout)
        self.gelu = nn.GELU(APPROXIMATION[architecture.gelu])

    def forward(self, hidden: Tensor, mix: Mix, asked: Tensor | None = None) -> Tensor:
        """float [.., H] → float [.., H], or, with `asked` int64 [..], only these of the tokens, which are counted through
        all rows: float [.., H] in the form of `asked`."""
        asking = hidden if asked is None else F.embedding(asked, hidden.flatten(0, -2))
        attended = self.attention_norm(asking + self.dropout(self.attention(asking, hidden, mix)))
        widened = self.gelu(self.intermediate(attended))  # [.., intermediate]
        return self.output_norm(attended + self.dropout(self.output(widened)))


class Bert(nn.Module):
    """The encoder and its pooler."""

    def __init__(self, architecture: Architecture, vocabulary_size: int) -> None:
        super().__init__()
        self.architecture = architecture
        self.vocabulary_size = vocabulary_size
        self.checkpointing = False
        """in training each layer is computed again for the backward pass, with the same dropout, instead of kept"""
        self.embeddings = Embeddings(architecture, vocabulary_size)
        self.layers = nn.ModuleList(Layer(architecture) for _ in range(architecture.layers))
        self.pooler = nn.Linear(architecture.hidden, architecture.hidden)

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor, positions: Tensor | None = None
    ) -> Tensor:
        """int64 [B, S], int64 [B, S], bool [B, S] (False: padding) → hidden states float [B, S, H].

        With `positions` int64 [B, P] the hidden states at these positions only, float [B, P, H], and the last layer
        costs P / S of what it would. The sentence head needs the first token's state first: positions[:, 0] = 0.
        """
        # Without padding the mask changes nothing, and attention without one is faster. Only a CPU knows without waiting.
        full = attention_mask.device.type == "cpu" and bool(attention_mask.all())
        mask = None if full else attention_mask[:, None, None, :]
        last_mask = mask
        batch, sequence = input_ids.shape
        if self.architecture.attention == "causal":
            place = torch.arange(sequence, device=input_ids.device)
            asking = place[None] if positions is None else positions
            padding = attention_mask[:, None, None, :]
            mask = padding & (place[:, None] >= place)  # [B, 1, S, S]
            last_mask = padding & (asking[:, None, :, None] >= place)  # [B, 1, P, S]
        if positions is not None:
            positions = positions + torch.arange(0, batch * sequence, sequence, device=positions.device)[:, None]
        embedded = self.embeddings(input_ids, token_type_ids)
        return self._through_layers(embedded, padded(mask), padded(last_mask), positions)

    def unpadded(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,
        rows: Rows,
        asked: Tensor,
        asked_rows: Rows,
    ) -> Tensor:
        """int64 [T] each → hidden states of the tokens `asked` int64 [Q], row by row: float [Q, H].

        `rows`: where each row lies among the T; `asked_rows`: where what is asked for of it lies among the Q.
        """
        embedded = self.embeddings(input_ids, token_type_ids, position_ids)
        if self.architecture.attention == "causal":  # nearly every token is to be predicted: all of them are computed
            mix = unpadded(rows, rows, causal=True)
            return F.embedding(asked, self._through_layers(embedded, mix, mix))
        return self._through_layers(embedded, unpadded(rows, rows), unpadded(asked_rows, rows), asked)

    def unpadded_states(
        self, input_ids: Tensor, token_type_ids: Tensor, position_ids: Tensor, rows: Rows
    ) -> Iterator[Tensor]:
        """int64 [T] each → hidden states of all tokens, float [T, H]: the embeddings', then those of every layer.

        Each is computed when it is asked for: who stops early does not pay for the layers above.
        """
        mix = unpadded(rows, rows, causal=self.architecture.attention == "causal")
        hidden: Tensor = self.embeddings(input_ids, token_type_ids, position_ids)
        yield hidden
        for layer in self.layers:
            hidden = self._layer(layer, hidden, mix, None)
            yield hidden

    def _through_layers(self, hidden: Tensor, mix: Mix, last_mix: Mix, asked: Tensor | None = None) -> Tensor:
        for layer in self.layers[:-1]:
            hidden = self._layer(layer, hidden, mix, None)
        return self._layer(self.layers[-1], hidden, last_mix, asked)

    def _layer(self, layer: nn.Module, hidden: Tensor, mix: Mix, asked: Tensor | None) -> Tensor:
        if self.checkpointing and self.training:
            computed: Tensor = checkpoint(layer, hidden, mix, asked, use_reentrant=False)
        else:
            computed = layer(hidden, mix, asked)
        return computed

    def pool(self, hidden: Tensor) -> Tensor:
        """float [B, S, H] → float [B, H]: tanh of a projection of the first token."""
        return torch.tanh(self.pooler(hidden[:, 0]))


class MaskedWordHead(nn.Module):
    """Projection, gelu, LayerNorm, then the word embeddings transposed and a bias of their own."""

    def __init__(self, architecture: Architecture, vocabulary_size: int) -> None:
        super().__init__()
        self.transform = nn.Linear(architecture.hidden, architecture.hidden)
        self.gelu = nn.GELU(APPROXIMATION[architecture.gelu])
        self.norm = nn.LayerNorm(architecture.hidden, eps=LAYER_NORM_EPSILON)
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))

    def forward(self, hidden: Tensor, words: Tensor) -> Tensor:
        """float [M, H], float [V, H] → logits float [M, V]; in training [M, V'], V' the next multiple of 64.

        The spare ones are −inf: softmax, cross entropy, argmax and every gradient are those of V words. No weight,
        checkpoint or export has these rows. To cut them off in training would copy the largest array of a step, there and
        back.
        """
        spare = -len(words) % VOCABULARY_MULTIPLE
        normed = self.norm(_wide(self.gelu(self.transform(hidden))))
        logits = F.linear(normed, F.pad(words, (0, 0, 0, spare)), F.pad(self.bias, (0, spare), value=-torch.inf))
        return logits if self.training else logits[:, : len(words)]


class BertForPretraining(nn.Module):
    """Encoder with the masked-word head and, with a sentence task, the head for it."""

    def __init__(self, architecture: Architecture, vocabulary_size: int, sentence_task: str) -> None:
        super().__init__()
        self.encoder = Bert(architecture, vocabulary_size)
        self.masked_words = MaskedWordHead(architecture, vocabulary_size)
        self.next_sentence = nn.Linear(architecture.hidden, 2) if sentence_task != "none" else None

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        attention_mask: Tensor,
        positions: Tensor,
        masked_places: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        """Logits of the masked words, float [M, V] (in training −inf beyond V up to a multiple of 64), and of the next
        sentence, float [B, 2] (None without that task).

        `positions` int64 [B, P]: 0, then the row's masked positions, then fillers. `masked_places` int64 [M]: where in
        the flattened `positions` the masked words stand.
        """
        hidden = self.encoder(input_ids, token_type_ids, attention_mask, positions)  # [B, P, H]
        return self._heads(hidden.flatten(0, 1), masked_places, hidden)

    def unpadded(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,
        rows: Rows,
        asked: Tensor,
        asked_rows: Rows,
        masked_places: Tensor,
    ) -> tuple[Tensor, Tensor | None]:
        """`forward` of an unpadded batch.

        `asked` int64 [Q]: of each row its first token, then its masked ones. `masked_places` int64 [M]: where in `asked`
        the masked words stand. The others as `Bert.unpadded` has them.
        """
        hidden = self.encoder.unpadded(input_ids, token_type_ids, position_ids, rows, asked, asked_rows)  # [Q, H]
        return self._heads(hidden, masked_places, F.embedding(asked_rows.starts[:-1, None], hidden))

    def _heads(self, hidden: Tensor, masked_places: Tensor, by_row: Tensor) -> tuple[Tensor, Tensor | None]:
        chosen = F.embedding(masked_places, hidden)  # [M, H]
        words = self.masked_words(chosen, self.encoder.embeddings.word.weight)
        return words, None if self.next_sentence is None else self.next_sentence(self.encoder.pool(by_row))


@dataclass(frozen=True)
class Losses:
    """Losses of one batch, or a part's share in them, each a scalar tensor."""

    total: Tensor
    """sum of the two: what is minimised"""
    masked_words: Tensor
    """mean negative log likelihood over the masked positions of the batch"""
    next_sentence: Tensor | None
    """mean over the rows of the batch"""


def pretraining_losses(
    word_logits: Tensor,
    masked_ids: Tensor,
    sentence_logits: Tensor | None,
    labels: Tensor | None,
    *,
    masked_weights: Tensor | None = None,
    batch_words: float | Tensor | None = None,
    batch_rows: float | Tensor | None = None,
) -> Losses:
    """The loss of google-research/bert run_pretraining.py: mean over masked words plus mean over sentence pairs.

    float [M, V'], int64 [M], float [B, 2] or None, int64 [B] or None; of a batch with fillers also float [M], 0 for these, and
    label −100 for filled-up rows. Of a part of a batch, `batch_words` and
    `batch_rows` say how many masked words and rows the whole batch has: then losses and gradients of the parts, wherever
    they are computed, add up to those of the batch.
    """
    if masked_weights is None:
        words = _CrossEntropy.apply(
            _wide(word_logits), masked_ids, len(masked_ids) if batch_words is None else batch_words
        )
    else:
        each = F.cross_entropy(_wide(word_logits), masked_ids, reduction="none")
        words = (each * masked_weights).sum() / (masked_weights.sum() if batch_words is None else batch_words)
    if sentence_logits is None or labels is None:
        return Losses(words, words, None)
    if batch_rows is None:
        batch_rows = len(labels) if masked_weights is None else (labels >= 0).sum()
    sentences = F.cross_entropy(_wide(sentence_logits), labels, reduction="sum") / batch_rows
    return Losses(words + sentences, words, sentences)


def _wide(values: Tensor) -> Tensor:
    """At least fp32: sums over a vocabulary, or over hidden units, lose too much in bf16."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


class _CrossEntropy(torch.autograd.Function):
    """Sum of cross entropies / count, float [M, V] and int64 [M] → scalar, its gradient made in place of the softmax.

    Over a large vocabulary this is a third of the time of F.cross_entropy, which fills two more arrays of this size.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, count: int) -> Tensor:
        """Sum of log Σ exp(logits) − logit of the target, / count.

        With l the largest logit and p its share, log Σ exp(logits) = l − log p, and p is never small.
        """
        shares = F.softmax(logits, 1)
        sums = logits.amax(1) - shares.amax(1).log()
        ctx.save_for_backward(shares, targets)
        ctx.count = count
        return (sums - logits.gather(1, targets[:, None])[:, 0]).sum() / count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """(softmax − one-hot) / count. Overwrites what forward saved: it runs once."""
        shares, targets = ctx.saved_tensors
        shares[torch.arange(len(targets), device=targets.device), targets] -= 1.0
        return shares.mul_(gradient / ctx.count), None, None


@torch.no_grad()
def initialize(module: nn.Module, seed: int) -> None:
    """Set every parameter as modeling.py does: matrices from a normal of std .02 cut off at two std, biases 0, gains 1; of an
    LSTM, which modeling.py has not, as `_initialize_lstm` says.

    A generator of its own on the CPU: equal seeds give equal weights on every device, whatever was drawn before.
    """
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, nn.LSTM):
            _initialize_lstm(part, generator)
            continue
        for name, parameter in part.named_parameters(recurse=False):
            if parameter.ndim > 1:
                drawn = torch.empty(parameter.shape)
                nn.init.trunc_normal_(
                    drawn, std=INITIAL_STD, a=-2 * INITIAL_STD, b=2 * INITIAL_STD, generator=generator
                )
                parameter.copy_(drawn)
            else:
                parameter.fill_(1.0 if isinstance(part, nn.LayerNorm) and name == "weight" else 0.0)


def _initialize_lstm(lstm: nn.LSTM, generator: torch.Generator) -> None:
    """Matrices uniform between ±1/√h, as torch does; biases 0, but 1 for the forget gates, as in TensorFlow's cells.

    With h = 768 that is a std of .0208, BERT's .02; narrower ones need more, since nothing normalises what goes through
    them: with .02 and h = 16 next to nothing would come out. Forget gates that begin half closed lose half of the state,
    and of its gradient, with every token (Jozefowicz et al. 2015).
    """
    hidden = lstm.hidden_size
    for name, parameter in lstm.named_parameters():
        if parameter.ndim > 1:
            bound = hidden**-0.5
            parameter.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator))
        else:
            parameter.zero_()
            if name.startswith("bias_ih"):  # bias_hh is added to it
                parameter[hidden : 2 * hidden] = 1.0  # torch's order: input, forget, cell and output gates
