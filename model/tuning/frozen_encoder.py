"""What the frozen encoder of a job of fine-tuning says of its texts: computed before the first run that needs it, kept in the run
folder until the job has ended."""

import shutil
from collections.abc import Mapping

from model.bert import initialize
from model.layers.classifier import Classifier
from model.layers.layer_choices import needed
from model.processes.run_folder import FEATURES
from model.tuning.features import Kept, keep
from model.tuning.finetuning_job import PRETRAINED
from model.tuning.finetuning_run import Setup, load_encoder


def kept_features(setup: Setup, network: str) -> Mapping[str, Kept] | None:
    """By part, the hidden states of all choices of layers; None: asked to stop. Those of the other network are removed.

    All runs of the network that is not pretrained share one, drawn by the first seed: what is kept must not be computed for
    every seed.

    Raises:
        DataError: the encoder has too few layers for a choice, or does not fit its config.json.
        StoreError: the disk has no room for them.
    """
    config, root = setup.job.config, setup.folder / FEATURES
    layers = needed([each.layers for each in config.variants if each.layers], setup.architecture.layers)
    for other in root.glob("*"):
        if other.name != network:
            shutil.rmtree(other)
    model = Classifier(setup.architecture, len(setup.tokenizer.vocabulary), 1, "tokens")
    initialize(model, config.seed)
    if network == PRETRAINED:
        load_encoder(model, setup.job.pretrained)
    encoder = model.encoder.to(setup.device.torch_device)
    kept: dict[str, Kept] = {}
    for part, examples in setup.encoded.items():
        found = keep(root / network / part, encoder, setup.device, examples, layers, config.precision, setup.stop)
        if found is None:
            return None
        kept[part] = found
    return kept
