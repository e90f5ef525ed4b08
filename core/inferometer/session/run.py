"""One launch: load the engine, measure the cells, unload.

It talks to whoever listens through one function, so a test drives it with a virtual clock and
no process. Prompts are built here, after loading, with the engine's own tokenizer.
"""

from __future__ import annotations

import platform
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from attrs import evolve, frozen

from inferometer.codec import StructureError
from inferometer.describe import read_options
from inferometer.engine import Adapter, CacheMode, Context, Engine, Request, TokenPrompt, Usage
from inferometer.errors import (
    ContractViolation,
    EngineError,
    EngineFault,
    PromptError,
    Unsupported,
)
from inferometer.failures import Failure
from inferometer.identity import EngineIdentity
from inferometer.measure import Clock, Observation, clock, harness_overhead_ns, observe, quiet
from inferometer.prompts import BuiltPrompt, PromptSpec, build_prompt
from inferometer.results import Arrivals, LoadPhases, Sample
from inferometer.session.recorded import crash, failure_of, missing_methods, recordable
from inferometer.suite import Condition, Workload
from inferometer.wire import Cell, Done, Failed, Job, Loaded, Measured, Message, Skipped, Stage


class _LaunchFailed(Exception):  # noqa: N818 - an event that ends the job, not an error here
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Session:
    """Carries out one job.

    Args:
        job: what to do.
        adapter: whose engine.
        say: tells the parent, and returns when it has listened.
        clock: the core's clock.
    """

    def __init__(
        self, job: Job, adapter: Adapter, say: Callable[[Message], None], clock: Clock = clock
    ) -> None:
        self._job = job
        self._adapter = adapter
        self._say = say
        self._clock = clock
        self._started = clock()
        self._stage = "start"
        self._engine: Engine | None = None
        self._identity = EngineIdentity(engine=adapter.name)

    def run(self) -> None:
        """Do the job; what goes wrong is reported, never raised."""
        try:
            phases = self._load()
            with quiet():
                self._report(phases)
                self._measure()
            self._enter("usage")
            self._say(Done(usage=recordable(self._live.usage(), Usage, "its usage")))
        except _LaunchFailed as failed:
            self._say(Failed(failure=failed.failure))
        except EngineFault as fault:
            self._say(Failed(failure=failure_of(fault, self._stage)))
        except Exception as error:  # noqa: BLE001 - an adapter may raise anything
            _log_traceback()
            self._say(Failed(failure=crash(error, self._stage)))
        finally:
            self._unload()

    @property
    def _live(self) -> Engine:
        assert self._engine is not None
        return self._engine

    def _enter(self, stage: str, workload: str | None = None) -> None:
        self._stage = f"{stage} {workload}" if workload else stage
        self._say(Stage(name=stage, workload=workload))

    # --- loading ---------------------------------------------------------------------------

    def _load(self) -> LoadPhases:
        phases = LoadPhases(
            import_ns=self._timed("import", self._create),
            prepare_ns=self._timed("prepare", partial(self._live.prepare, self._job.model)),
            load_ns=self._timed("load", self._live.load),
        )
        self._enter("identify")
        self._identity = recordable(self._live.identify(), EngineIdentity, "its identity")
        return phases

    def _timed(self, stage: str, step: Callable[[], None]) -> int:
        self._enter(stage)
        begun = self._clock()
        step()
        return self._clock() - begun

    def _create(self) -> None:
        context = Context(
            context_tokens=self._job.context_tokens,
            log_path=self._job.log_path,
            cache_dir=self._job.cache_dir,
        )
        with suppress(OSError):  # an engine that needs it will say so itself
            context.cache_dir.mkdir(parents=True, exist_ok=True)
        engine = self._adapter.create(self._options(), context)
        if not isinstance(engine, Engine):
            raise ContractViolation(
                f"adapter {self._adapter.name} created {type(engine).__name__}, "
                f"which lacks {', '.join(missing_methods(engine))}"
            )
        self._engine = engine

    def _options(self) -> Any:
        # The parent has checked them; only a differing version of the adapter can disagree.
        try:
            return read_options(self._adapter, self._job.options)
        except StructureError as error:
            raise EngineError(f"options: {error}", kind="wrong_options") from None

    def _report(self, phases: LoadPhases) -> None:
        self._say(
            Loaded(
                python=platform.python_version(),
                phases=phases,
                identity=self._identity,
                harness_overhead_ns=harness_overhead_ns(self._clock),
            )
        )

    def _unload(self) -> None:
        if self._engine is None:
            return
        try:
            self._engine.unload()
        except Exception:  # noqa: BLE001 - everything measured is safe; the log keeps the reason
            _log_traceback()

    # --- measuring -------------------------------------------------------------------------

    def _measure(self) -> None:
        if self._job.first_request:
            self._first_request(self._job.first_request)
        for cell in self._job.cells:
            self._measure_cell(cell)

    def _first_request(self, workload: Workload) -> None:
        self._enter("prompt", workload.name)
        try:
            prompt = self._prompt(workload, "load")
        except PromptError as error:
            self._skip(workload, Condition.LOAD, "prompt_rejected", str(error))
            return
        self._enter("first request", workload.name)
        self._sample(_Ask(evolve(workload, output_tokens=1), Condition.LOAD, prompt))

    def _measure_cell(self, cell: Cell) -> None:
        self._enter("prompt", cell.workload.name)
        try:
            asks = [*self._warmups(cell), *self._conditions(cell)]
        except PromptError as error:
            for condition in cell.conditions:
                self._skip(cell.workload, condition, "prompt_rejected", str(error))
            return
        for position, ask in enumerate(asks):
            self._enter("warm-up" if ask.warmup else ask.condition, cell.workload.name)
            if not self._sample(ask):
                self._skip_rest(asks[position + 1 :])
                return

    def _warmups(self, cell: Cell) -> Iterator[_Ask]:
        workload = cell.workload
        for number in range(workload.warmup):
            use = f"warmup{number}"
            yield _Ask(workload, Condition.COLD, self._prompt(workload, use), warmup=use)
        if Condition.REUSE in cell.conditions and Condition.COLD not in cell.conditions:
            yield _Ask(workload, Condition.COLD, self._prompt(workload, "seen"), warmup="prime")

    def _conditions(self, cell: Cell) -> Iterator[_Ask]:
        for condition in cell.conditions:
            use = "unseen" if condition is Condition.CONTROL else "seen"
            yield _Ask(cell.workload, condition, self._prompt(cell.workload, use))

    def _skip_rest(self, asks: list[_Ask]) -> None:
        for ask in asks:
            if not ask.warmup:
                reason = "an earlier request of this cell failed"
                self._skip(ask.workload, ask.condition, "earlier_request_failed", reason)

    def _skip(self, workload: Workload, condition: Condition, code: str, reason: str) -> None:
        self._say(Skipped(workload=workload.name, condition=condition, code=code, reason=reason))

    def _sample(self, ask: _Ask) -> bool:
        """Send one request and report it; return whether the cell can go on."""
        request = self._request(ask)
        seen = self._observed(request)
        if isinstance(seen.fault, Unsupported):
            if not ask.warmup:
                self._skip(ask.workload, ask.condition, "unsupported", str(seen.fault))
            return True
        sample = self._recorded(ask, request, seen)
        self._say(Measured(sample=sample))
        if isinstance(seen.fault, EngineError) and seen.fault.fatal and sample.failure:
            raise _LaunchFailed(sample.failure)
        return sample.failure is None

    def _observed(self, request: Request) -> Observation:
        if request.cache_mode is CacheMode.COLD:
            try:
                self._forget()
            except EngineFault as fault:
                return _unsent(fault, self._clock())
        return observe(self._live, request, self._clock)

    def _forget(self) -> None:
        # An engine that can leave its cache unused for one request is trusted with the mode.
        capabilities = self._adapter.capabilities
        if capabilities.resets_cache and not capabilities.disables_cache:
            self._live.reset_cache()

    def _request(self, ask: _Ask) -> Request:
        workload, condition = ask.workload, ask.condition
        return Request(
            request_id=f"{self._job.launch}/{workload.name}/{ask.warmup or condition}",
            prompt=TokenPrompt(ask.prompt.ids),
            max_output_tokens=workload.output_tokens,
            ignore_eos=workload.ignore_eos,
            sampling=workload.sampling,
            cache_mode=CacheMode.REUSE if condition is Condition.REUSE else CacheMode.COLD,
        )

    def _recorded(self, ask: _Ask, request: Request, seen: Observation) -> Sample:
        return Sample(
            request_id=request.request_id,
            launch=self._job.launch,
            round=self._job.round,
            subject=self._job.subject,
            workload=ask.workload.name,
            condition=ask.condition,
            warmup=bool(ask.warmup),
            prompt_digest=ask.prompt.digest,
            prompt_tokens=len(ask.prompt.ids),
            max_output_tokens=request.max_output_tokens,
            ignore_eos=request.ignore_eos,
            sampling=request.sampling,
            cache_mode=request.cache_mode,
            started_ns=seen.sent_ns - self._started,
            setup_ns=seen.setup_ns,
            arrivals=seen.arrivals,
            end_ns=seen.end_ns,
            output_ids=seen.output_ids,
            ending=seen.ending,
            failure=failure_of(seen.fault, self._stage) if seen.fault else None,
        )

    def _prompt(self, workload: Workload, use: str) -> BuiltPrompt:
        # The salt leaves the subject out, so that every subject gets the very same prompts.
        return build_prompt(
            PromptSpec(source=workload.prompt, tokens=workload.length, ids=workload.ids),
            tokenizer=self._live,
            facts=self._identity.tokenizer,
            chat_template=self._identity.chat_template,
            salt=f"{self._job.seed}-{self._job.round}-{workload.name}-{use}",
        )


@frozen
class _Ask:
    """One request to come."""

    workload: Workload
    condition: Condition
    prompt: BuiltPrompt
    warmup: str = ""


def _log_traceback() -> None:
    with suppress(OSError):  # a log on a full disk must not cost the message as well
        traceback.print_exc()


def _unsent(fault: EngineFault, now: int) -> Observation:
    return Observation(
        sent_ns=now,
        setup_ns=0,
        end_ns=0,
        arrivals=Arrivals(),
        output_ids=None,
        ending=None,
        fault=fault,
    )
