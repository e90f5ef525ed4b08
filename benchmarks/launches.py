"""Run one subject through the real launcher and worker, as `inferometer run` does."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from inferometer import runner
from inferometer.engine import Sampling
from inferometer.launcher import Limits
from inferometer.prompts import PromptSource
from inferometer.results import Results
from inferometer.suite import Condition, Subject, Suite, Workload
from inferometer.survey import survey


@frozen(kw_only=True)
class Shape:
    """One cold request: prompt ids (or a length) and output tokens."""

    ids: tuple[int, ...] = ()
    prompt_tokens: int | None = None
    output_tokens: int

    def workload(self) -> Workload:
        return Workload(
            name="bench",
            prompt=PromptSource.IDS if self.ids else PromptSource.CHAT,
            prompt_tokens=self.prompt_tokens,
            ids=self.ids,
            output_tokens=self.output_tokens,
            sampling=Sampling(),
            warmup=1,
        )


def measure(subject: Subject, shape: Shape, folder: Path, *, rounds: int = 1) -> Results:
    """Return the results of cold requests of one shape, a fresh process per round."""
    surveyed = survey([subject])
    suite = Suite(
        name="bench", rounds=rounds, conditions=(Condition.COLD,), workloads=(shape.workload(),)
    )
    run = runner.create(
        folder,
        suite,
        surveyed.records,
        rounds=rounds,
        order_seed=1,
        evidence=surveyed.evidence,
        limits=Limits(),
    )
    return runner.execute(run)
