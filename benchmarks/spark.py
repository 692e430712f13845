"""Spark for Beam by `beam-pyspark-runner`, which was written for Beam 2.48: Reshuffle, which it doesn't know as of Beam
2.77, is Spark's own repartition.

It shows that the stages give the same bytes on another engine; to run on Spark for work, use Beam's SparkRunner.
"""

from typing import Any

import apache_beam as beam
from apache_beam.pipeline import PTransformOverride
from beam_pyspark_runner import overrides, transform_evaluators
from beam_pyspark_runner.pyspark_runner import PySparkRunner

PARTITIONS = 4


class _Repartition(beam.PTransform):
    def expand(self, pcoll: Any) -> Any:
        return beam.pvalue.PCollection.from_(pcoll)


class _ReshuffleOverride(PTransformOverride):
    def matches(self, applied: Any) -> bool:
        return isinstance(applied.transform, beam.Reshuffle)

    def get_replacement_transform_for_applied_ptransform(self, applied: Any) -> beam.PTransform:
        return _Repartition()


class ReshufflingRunner(PySparkRunner):  # type: ignore[misc]
    """PySparkRunner that knows Reshuffle."""


transform_evaluators.evaluator_mapping[_Repartition] = lambda _, rdds, *args, **names: rdds[0].repartition(PARTITIONS)
overrides.pyspark_overrides.insert(0, _ReshuffleOverride())
