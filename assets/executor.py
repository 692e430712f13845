"""Every step in a process of its own, at most so many at once, by Dagster's multiprocess executor.

A fork server starts a process in half the time of a fresh interpreter, and loads once per run what every step needs: Great
Expectations alone takes seconds to import.
"""

import time
from collections.abc import Iterator, Sequence

import dagster as dg
from dagster._core.execution.context.system import PlanOrchestrationContext
from dagster._core.execution.plan.active import ActiveExecution
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.plan.step import ExecutionStep
from dagster._core.executor import multiprocess

from assets.asset import process_tag
from pipeline.system.owners import Owner

MAX_CONCURRENT = 2
PRELOADED = ["great_expectations", "assets.definitions"]
LOOK_SECONDS = 0.1
"""between two looks for a step that may begin, while none of the run's is at work"""


class _Patient(ActiveExecution):
    """Steps of a run that is under way.

    While all that are left wait for the slot of a pool, Dagster 1.13 asks for them without a pause, and the run that waits
    for another's training takes a whole core from it.
    """

    def get_steps_to_execute(self, limit: int | None = None) -> Sequence[ExecutionStep]:
        """`limit`: how many more there may be; MAX_CONCURRENT where none is at work."""
        steps = super().get_steps_to_execute(limit)
        if not steps and limit == MAX_CONCURRENT:
            time.sleep(LOOK_SECONDS)
        return steps


class _Known(multiprocess.MultiprocessExecutor):
    """Says which process executes the run before its first step begins: who finds the run later can tell whether it lives."""

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[dg.DagsterEvent]:
        """Of a whole run, in the run's own process."""
        plan_context.instance.add_run_tags(plan_context.run_id, process_tag(plan_context.run_id, Owner.this()))
        yield from super().execute(plan_context, execution_plan)


multiprocess.ActiveExecution = _Patient  # type: ignore[misc]
multiprocess.MultiprocessExecutor = _Known  # type: ignore[misc]

EXECUTOR = dg.multiprocess_executor.configured(
    {"max_concurrent": MAX_CONCURRENT, "start_method": {"forkserver": {"preload_modules": PRELOADED}}}
)
