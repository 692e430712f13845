"""What a step of pretraining, or a held-out evaluation, found: losses, right answers, counts."""

import math

import torch
from torch import Tensor

from model.bert import Losses
from model.devices import Device
from model.feeding.batches import Batch
from model.layers.unpadded import UnpaddedBatch
from model.processes.replicas import Replicas
from model.training.pretraining_job import Window, mean
from pipeline.sharding.shard_schema import Shards


class Found:
    """What forward passes found, over parts and replicas: counts that the host knows, and sums that are on the device.

    Only `read` waits for the device.
    """

    def __init__(self, device: Device) -> None:
        self.words = self.sentences = self.tokens = self.places = self.flops = 0.0
        self.words_right = self.words_loss = self.sentences_right = self.sentences_loss = self.gradient_norm = 0.0
        """0 until they are read; the norm is that of the whole batch's gradient"""
        self.sums = torch.zeros(5, dtype=torch.float64, device=device.torch_device)
        """these five, in this order"""

    def add(
        self,
        losses: Losses,
        words: Tensor,
        pairs: Tensor | None,
        batch: Batch | UnpaddedBatch,
        words_total: float | Tensor,
        pairs_total: float | Tensor,
    ) -> None:
        """Add a batch's sums: its losses, which are sums divided by these totals, and what is right in its logits."""
        right = words.detach().argmax(1) == batch.masked_ids
        if batch.masked_weights is not None:
            right &= batch.masked_weights > 0
        sums = [right.sum(), losses.masked_words.detach().double() * words_total]
        if losses.next_sentence is not None and pairs is not None and batch.labels is not None:
            sums.append((pairs.detach().argmax(1) == batch.labels).sum())
            sums.append(losses.next_sentence.detach().double() * pairs_total)
        self.sums[: len(sums)] += torch.stack([each.double() for each in sums])

    def count(self, rows: Shards, batch: Batch | UnpaddedBatch, flops: float = 0.0) -> None:
        """Count a batch, made of `rows`."""
        self.words += len(rows.masked_ids)
        if batch.labels is not None:
            self.sentences += len(rows)
        self.tokens += batch.tokens
        self.places += batch.input_ids.numel()
        self.flops += flops

    def of_all(self, replicas: Replicas) -> "Found":
        """Makes this the sum over all replicas."""
        counts = [self.words, self.sentences, self.tokens, self.places, self.flops]
        self.words, self.sentences, self.tokens, self.places, self.flops = replicas.sums(counts)
        replicas.sum_on_device(self.sums)
        return self

    def read(self) -> "Found":
        """This, with the sums read."""
        read = self.sums.tolist()
        self.words_right, self.words_loss, self.sentences_right, self.sentences_loss, self.gradient_norm = read
        return self

    def loss_on(self, device: Device) -> Tensor:
        """`loss` as the device knows it: float64 scalar."""
        words, sentences = (device.scalar(max(1.0, count)) for count in (self.words, self.sentences))
        return self.sums[1] / words + self.sums[3] / sentences

    @property
    def loss(self) -> float:
        """Mean over masked words plus mean over pairs."""
        return (mean(self.words_loss, self.words) or 0.0) + (mean(self.sentences_loss, self.sentences) or 0.0)

    @property
    def is_finite(self) -> bool:
        """Whether loss and gradient norm are."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)

    def add_to(self, window: Window) -> None:
        """Add a step that was read to the sums of a row of metrics.jsonl."""
        window.steps += 1
        window.loss += self.loss
        window.mlm_loss += mean(self.words_loss, self.words) or 0.0
        window.nsp_loss += mean(self.sentences_loss, self.sentences) or 0.0
        window.words += int(self.words)
        window.words_right += int(self.words_right)
        window.sentences += int(self.sentences)
        window.sentences_right += int(self.sentences_right)
        window.gradient_norm += self.gradient_norm
        window.padding_share += 1 - self.tokens / self.places
