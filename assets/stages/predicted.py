"""`predicted_T`: the answers to a task that is only a test set."""

import dagster as dg

from assets.asset import Wiring
from assets.stages.finetuned import metadata

WIRING = Wiring(
    description="The answers to a task that is only a test set, by the model of another task.",
    kinds=frozenset({"pytorch"}),
    metadata=metadata,
    pool="accelerator",
    retry=dg.RetryPolicy(max_retries=2, delay=15),
)
