"""One launch: a worker is started, followed, and ended; what it says goes into the journal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from attrs import evolve

from inferometer import journal
from inferometer.artifact import resident_ratio
from inferometer.engine import LogEvidence, scratch_of
from inferometer.errors import PluginError
from inferometer.failures import Failure, log_lines, refined
from inferometer.host import read_load
from inferometer.launcher import Worker, WorkerEnded
from inferometer.plan import PlannedLaunch
from inferometer.results import Launch, Skip
from inferometer.runner.folder import Run, now
from inferometer.runner.observer import Observer
from inferometer.wire import Done, Failed, Job, Loaded, Measured, Message, Skipped, Stage


class Launching:
    """One launch, from its first record to its last."""

    def __init__(
        self, run: Run, launch: PlannedLaunch, book: journal.Journal, observer: Observer
    ) -> None:
        self._run, self._launch, self._book, self._observer = run, launch, book, observer
        self._subject = run.subjects[launch.subject]
        self._log_path = run.folder / "logs" / f"{launch.id}.log"
        self._evidence: Sequence[LogEvidence] = run.evidence.get(launch.subject, ())

    def run(self) -> Failure | None:
        """Return why it failed, or None; interrupts pass through, with the worker ended."""
        self._book.append(journal.Launched(launch=self._begun()))
        worker, done, failure = self._worker(), Done(), None
        try:
            with worker:
                done = self._follow(worker)
        except WorkerEnded as ended:
            failure = ended.failure
        except PluginError as error:
            # It was usable when the run began; the launches to come may find it usable again.
            failure = self._refined(Failure(kind="plugin", message=str(error), stage=worker.stage))
        finally:
            shutil.rmtree(scratch_of(self._log_path), ignore_errors=True)
        self._book.append(journal.Ended(launch=self._launch.id, failure=failure, usage=done.usage))
        return failure

    def _worker(self) -> Worker:
        return Worker(
            self._subject.python,
            self._log_path,
            limits=self._run.limits,
            evidence=self._evidence,
        )

    def _begun(self) -> Launch:
        return Launch(
            id=self._launch.id,
            round=self._launch.round,
            subject=self._launch.subject,
            started_at=now(),
            context_tokens=self._launch.context_tokens,
            file_cache_ratio=resident_ratio(self._subject.model),
            host_load=read_load(),
        )

    def _follow(self, worker: Worker) -> Done:
        worker.hello()
        self._spawn_ns = worker.age_ns()
        worker.order(self._job())
        while True:
            message = worker.receive()
            if isinstance(message, Done | Failed):
                break
            self._note(worker, message)
            worker.go_on()
        worker.go_on()
        worker.finish()
        if isinstance(message, Failed):
            raise WorkerEnded(self._refined(message.failure))
        return message

    def _note(self, worker: Worker, message: Message) -> None:
        match message:
            case Stage(name=name, workload=workload):
                worker.stage = f"{name} {workload}" if workload else name
                self._observer.stage_begins(name, workload)
            case Loaded():
                self._book.append(
                    journal.Ready(launch=self._launch.id, spawn_ns=self._spawn_ns, loaded=message)
                )
            case Measured(sample=measured):
                failure = measured.failure and self._refined(measured.failure)
                sample = evolve(measured, failure=failure)
                self._book.append(journal.Sampled(sample=sample))
                self._observer.request_ended(sample)
            case Skipped():
                self._book.append(journal.Skipped(skip=self._skip(message)))
            case _:
                raise PluginError(f"the worker said {type(message).__name__} out of turn")

    def _refined(self, failure: Failure) -> Failure:
        return refined(failure, log_lines(self._log_path), self._evidence)

    def _skip(self, message: Skipped) -> Skip:
        return Skip(
            subject=self._launch.subject,
            workload=message.workload,
            condition=message.condition,
            code=message.code,
            reason=message.reason,
        )

    def _job(self) -> Job:
        return Job(
            launch=self._launch.id,
            round=self._launch.round,
            subject=self._subject.name,
            engine=self._subject.engine,
            model=self._subject.model,
            options=self._subject.options,
            context_tokens=self._launch.context_tokens,
            seed=self._run.seed,
            cells=self._launch.cells,
            first_request=self._launch.first_request,
            log_path=self._log_path,
            cache_dir=_cache_dir(),
        )


def _cache_dir() -> Path:
    """Return the user's cache folder for what adapters build once."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "inferometer"
