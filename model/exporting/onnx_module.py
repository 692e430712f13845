"""The torch modules that become ONNX files: the encoder with a mask as a tensor, and the heads that transformers' classes have."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from model.bert import Bert
from model.layers.attention import padded
from model.layers.weights import read_hugging_face


class Encoder(nn.Module):
    """BERT without its pooler; unlike `Bert.forward`, nothing depends on what stands in the mask."""

    def __init__(self, bert: Bert) -> None:
        super().__init__()
        self.bert = bert
        self.positions = bert.architecture.max_positions
        self.vocabulary_size = bert.vocabulary_size

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """int64 [B, S] each (0 in the mask: padding) → hidden states float [B, S, H]."""
        mask = attention_mask[:, None, None, :].bool()  # [B, 1, 1, S]
        if self.bert.architecture.attention == "causal":
            place = torch.arange(input_ids.shape[1], device=input_ids.device)
            mask = mask & (place[:, None] >= place)  # [B, 1, S, S]
        hidden: Tensor = self.bert.embeddings(input_ids, token_type_ids)
        for layer in self.bert.layers:
            hidden = layer(hidden, padded(mask))
        return hidden


class WithHead(nn.Module):
    """An encoder with one linear layer on top: of the pooled first token, or of every token."""

    def __init__(self, encoder: Encoder, head: nn.Linear, pooled: bool, parts: bool) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.pooled = pooled
        self.parts = parts
        """the outputs are given one by one: start and end of a span"""
        self.positions, self.vocabulary_size = encoder.positions, encoder.vocabulary_size

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor | tuple[Tensor, ...]:
        """int64 [B, S] each → logits float [B, classes], of tokens [B, S, classes]; in parts [B, S] each."""
        hidden = self.encoder(input_ids, attention_mask, token_type_ids)
        logits: Tensor = self.head(self.encoder.bert.pool(hidden) if self.pooled else hidden)
        return logits.unbind(-1) if self.parts else logits


def load(folder: Path, name: str) -> Encoder | WithHead:
    """The model of a folder that transformers loads as the class `name`, ready to export. Raises DataError where it can't be read."""
    found = read_hugging_face(folder)
    bert = Bert(found.architecture, found.vocabulary_size)
    own = {key.removeprefix("encoder."): value for key, value in found.weights.items() if key.startswith("encoder.")}
    bert.load_state_dict(own, strict=not {"pooler.weight", "pooler.bias"} - own.keys())
    encoder = Encoder(bert.float()).eval()
    if name in ("BertModel", "BertForPreTraining"):
        return encoder
    layer = "qa_outputs" if name == "BertForQuestionAnswering" else "classifier"
    weights = load_file(folder / "model.safetensors")
    weight, bias = weights[f"{layer}.weight"].float(), weights[f"{layer}.bias"].float()
    head = nn.Linear(weight.shape[1], weight.shape[0])
    head.load_state_dict({"weight": weight, "bias": bias})
    return WithHead(encoder, head, name == "BertForSequenceClassification", layer == "qa_outputs").eval()
