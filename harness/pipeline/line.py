"""One thought on its way: captured, pruned, stored, restored, continued, judged, recorded.

Each verb is one sentence of a task's story. States pass from verb to verb and are only read; what a
verb learns for `result.json` stays with the line until `finish`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from harness import machine, progress
from harness.attention.kernels.cpu.program import compiling
from harness.cache.base import Decoder
from harness.cache.registry import served
from harness.capture import Captured, check_length
from harness.compare.identity import Difference, told
from harness.config import Config, PruneConfig
from harness.fault.base import Fault
from harness.model.sampler import Sampler
from harness.pipeline import drive
from harness.pipeline.budget import Bounded, continuation
from harness.pipeline.damage import aid_for, changed, comparable, damaged
from harness.pipeline.diagnosis import diagnosed
from harness.pipeline.finish import Outcome, finish_run, shown
from harness.pipeline.judge import Judgement, judge, mutation
from harness.pipeline.origin import resolved
from harness.pipeline.prompt import answered, taken
from harness.pipeline.prune import held, moves, policy_of, pruned, scored, shrunk, without_scores
from harness.pipeline.quantize import quantization, quantizer_of
from harness.pipeline.refusal import foreseen, naming
from harness.pipeline.rehearsal import rehearse
from harness.pipeline.restore import identity_check
from harness.pipeline.rope_switch import Switching
from harness.pipeline.sampling import resumed
from harness.pipeline.self_check import beside
from harness.pipeline.session import Session
from harness.pipeline.snapshot import Stored, destination
from harness.pipeline.tail import committed, tail_of
from harness.pipeline.way import Way, meant
from harness.pipeline.yardstick import cost
from harness.prune.positions import reindexed
from harness.report.terminal.console import Say
from harness.results.reason import Code, Reason, reason
from harness.save import store
from harness.snapshot.history import coded, kept, reduced
from harness.snapshot.result import GOOD, UNJUDGED
from harness.snapshot.state import State
from harness.tokenizer.shown import continued

CONTROL = Fault()  # nothing is damaged
CONTINUING = ("resume", "loop", "chat", "prune")  # tasks that generate after what was restored


@dataclass(frozen=True)
class Restored:
    """A State that came back, verified, on the model's device, and what it goes on with.

    waived: differences of identity that `restore.strict=false` let pass. session, sampler: the
    damaged copies, where a fault was asked for.
    """

    state: State
    session: Session
    sampler: Sampler
    waived: list[Difference] = field(default_factory=list)


@dataclass
class Line:
    """session: the model, only read. fault: one damage on the way, none by default. record: what
    `result.json` will say beside the judgement."""

    session: Session
    fault: Fault = CONTROL
    record: dict[str, Any] = field(default_factory=dict)
    captured: Captured | None = None
    whole: State | None = None  # before anything was pruned
    made: State | None = None  # as it was to be saved, before any fault
    sampler: Sampler | None = None  # of the run that is never interrupted
    way: Way | None = None  # that the restored state was continued

    @classmethod
    def open(cls, cfg: Config, folder: Path, say: Say, fault: Fault = CONTROL) -> "Line":
        """Load the model of `cfg`, or the one that its snapshot was saved from, and begin."""
        if cfg.snapshot:
            manifest = store.read_manifest(store.place(cfg.snapshot))
            cfg, sampler = resumed(resolved(cfg, manifest), manifest["documents"], cfg.snapshot)
            foreseen(cfg, manifest, say)
            if cfg.task.name in CONTINUING:
                say.line(sampler)
        session = Session.open(cfg, folder, say)
        rehearse(session)
        return cls(session, fault, {"sampler": session.sampler().document()})

    def capture(self, steps: int = 0) -> State:
        """Prefill the declared prompt, which leaves room for `steps` tokens, and collect the State.

        The library's own cache is kept: the uninterrupted run goes on with that very object.
        """
        session, say = self.session, self.session.say
        rows = session.encoded()
        check_length(session.loaded, max(len(r.ids) for r in rows), steps)
        say.stage("capture")
        session.loaded.cost(sum(len(r.ids) for r in rows)).announce(say.note)
        self.sampler = session.sampler()
        self.captured = session.capture(rows, self.sampler)
        self.whole = state = self.captured.state
        say.done(
            f"{machine.many(state.tokens, 'token')}, 13 elements, {machine.human(state.kv_bytes)} of K/V"
        )
        account = list(map(dict, rows[0].account))
        self.record["text"] = {"prompt": rows[0].text, "account": account} | taken(session.cfg)
        return state

    def prune(self, state: State) -> State:
        """The State that the prune policy leaves: the same object under `prune=none`. Attention that was not
        recorded during the capture is recomputed from the token buffer; that is no part of `times["prune"]`."""
        session, settings = self.session, self.session.cfg.prune
        policy = policy_of(settings)
        session.times["prune"] = 0.0
        if policy is None:
            return state
        session.say.stage(f"prune {settings.name}")
        observed = scored(session.loaded, policy, state)
        how = moves(session.loaded, state) if settings.positions == "reindexed" else None
        start = time.perf_counter()
        chosen = pruned(policy, observed)
        small = chosen if how is None else reindexed(chosen, how)
        session.times["prune"] = time.perf_counter() - start
        self.record["kept"] = held(chosen, session.loaded.tokenizer)
        session.say.done(shrunk(small, state))
        return small if settings.at != "prefill" else without_scores(small)

    def quantize(self, state: State) -> State:
        """The State that the quantizer leaves: the same object under `quantize=none`. What that did
        to keys and values is in the record."""
        quantizer = quantizer_of(self.session.cfg.quantize)
        if quantizer is None:
            return state
        say = self.session.say
        say.stage(f"quantize {self.session.cfg.quantize.name}")
        start = time.perf_counter()
        small = quantizer.quantize(state)
        seconds = time.perf_counter() - start
        say.done(f"{small.kv_bytes:,} of {state.kv_bytes:,} bytes of K/V")
        self.record["quantization"] = quantization(quantizer, state, small, seconds)
        return small

    def save(self, state: State) -> Stored:
        """Write `state`, damaged where a fault damages it, and say so in the record."""
        self.fault.fits(state)
        self.made = state
        state = changed(self.fault, "state", state, aid_for(self.session, state))
        stored = self.write(state)
        if isinstance(stored.place, Path):
            self.fault.disk(stored.place)
        self.record |= {**stored.record(self.whole or state, state), "pruned": reduced(state)}
        return stored

    def write(self, state: State) -> Stored:
        """Write `state` as a snapshot, to `out=` or into the run directory. What a run that did not
        come to its end left in its own directory is replaced."""
        cfg, say = self.session.cfg, self.session.say
        place = destination(cfg, self.session.folder)
        say.stage(f"save {cfg.save.name}")
        here = place == self.session.folder / "snapshot"
        access = store.current(**({"overwrite": True} if here else {}))
        start = time.perf_counter()
        stored = Stored(place, store.save(state, place, cfg.save, say.note, access=access))
        self.session.times["save"] = time.perf_counter() - start
        where = "memory, for this process only" if cfg.save.name == "memory" else shown(place)
        say.done(f"{machine.human(stored.nbytes)} to {where}")
        return stored

    def restore(self, stored: Stored) -> Restored:
        """Read the snapshot back, verify every byte, compare its identity with what is loaded; where this
        line captured it, sampler and generator must be the same as well."""
        session = self.session.on(self.session.cfg.restore.device)
        say = session.say
        say.stage(f"load {shown(stored.place)}")
        start = time.perf_counter()
        with naming(session, stored.manifest):
            state, manifest = store.load(stored.place)
        state = state.to(session.loaded.device)
        session.times["load"] = time.perf_counter() - start
        if self.captured is None:
            live, sampler, saved = session, session.sampler(state), None
            prompt = session.loaded.tokenizer.decode(state.token_ids[0].tolist())
            self.record["text"] = {"prompt": prompt, "account": []}
            self.whole = state
        else:
            live, sampler = damaged(session, self.fault, state.rng)
            saved = sampler
        start = time.perf_counter()
        with naming(live, manifest, state):
            state, waived = identity_check(live, state, stored.place, saved)
        session.times["verify"] = time.perf_counter() - start
        say.done(f"{machine.many(state.tokens, 'token')}, {kept(state)}, verified")
        if waived:
            say.note(told(waived))
        self.record |= Stored(stored.place, manifest).record(self.whole or state, state)
        self.record = coded(state) | self.record | {"pruned": reduced(state)}  # before a fault here
        self.record["waived"] = [difference.row() for difference in waived]
        return Restored(changed(self.fault, "inputs", state), live, sampler, waived)

    def go_on(
        self,
        restored: Restored,
        prompt: torch.Tensor | None = None,
        follow: torch.Tensor | None = None,
        on_token: Callable[[torch.Tensor], None] = lambda ids: None,
    ) -> tuple[Decoder | Bounded | Switching, drive.Rollout]:
        """Continue what was restored by `steps` tokens: `(decoder, path)`; see `drive.drive`.

        Whether that wrote into what the decoder was handed is in the record.
        """
        cfg, times = self.session.cfg, self.session.times
        drive.aside(restored.session.loaded, restored.state)
        start = time.perf_counter()
        decoder = continuation(restored.session.loaded, restored.state, cfg.cache, cfg.prune)
        times["restore"] = time.perf_counter() - start
        before = decoder.fingerprint(cfg.cache.audit == "digest")
        path = drive.drive(decoder, restored.sampler, cfg.steps, prompt, follow, on_token)
        times.update(path.times)
        device = self.session.loaded.device
        stored = None if path.stored is None else path.stored.to(device)
        path = replace(path, logits=path.logits.to(device), stored=stored)
        self.record["mutation"] = mutation(decoder, before, cfg.steps)
        if isinstance(decoder, Bounded):
            self.record["bound"] = decoder.account()
        self.record["cache"] = served(getattr(decoder, "first", decoder))
        self.way = Way.of(decoder, cfg.cache, cfg.prune)
        return decoder, path

    def one_more(self, grown: State, restored: Restored, path: drive.Rollout) -> drive.Rollout:
        """`path`, and a step of whoever goes on from `grown`, the state that was stored after it: what
        is judged is then the next snapshot too. Only `path` where nothing can follow: at an end, at
        the model's last position. Advances the sampler of `restored`."""
        loaded, limit = restored.session.loaded, restored.session.loaded.max_positions
        full = limit is not None and int(grown.next_position.max()) >= limit
        if path.ended or full or len(path.fed) != grown.batch:  # of several branches one is stored
            return path
        cache = replace(self.session.cfg.cache, branches=1)
        runner = continuation(loaded, grown, cache, PruneConfig(name="none"))
        last = path.ids[:, -1:]
        logits = runner.step(last.to(loaded.device)).to(path.logits.device)
        choice = restored.sampler.choose(
            logits[:, -1], torch.cat([grown.token_ids.cpu(), last], dim=1)
        )
        return replace(
            path,
            logits=torch.cat([path.logits, logits], dim=1),
            ids=torch.cat([path.ids, choice], dim=1),
            fed=torch.cat([path.fed, last], dim=1),
            chunks=(*path.chunks, 1),
            tail=tail_of(committed(runner), path.fed.shape[1] + 1),
        )

    def uninterrupted(
        self,
        state: State,
        prompt: torch.Tensor | None = None,
        follow: torch.Tensor | None = None,
    ) -> drive.Rollout:
        """The run that was never interrupted, from `state` with all of its tokens: on the very cache
        that the capture filled, or on one rebuilt from the token buffer."""
        session, loaded = self.session, self.session.loaded
        session.say.stage("uninterrupted run")
        if self.captured is not None and self.sampler is not None:
            cache, sampler = self.captured.live, self.sampler
            if session.cfg.cache.branches > 1:
                cache.batch_repeat_interleave(session.cfg.cache.branches)
            run = drive.Uninterrupted(loaded, cache, state)
        else:
            loaded.cost(state.token_ids.numel()).announce(session.say.note)
            run, session.times["recompute"] = drive.rebuilt(loaded, state, session.cfg.prompt.chunk)
            sampler = session.sampler(state)
        steps = session.cfg.steps if follow is None else follow.shape[1]
        with progress.counting("uninterrupted run", steps) as count:
            path = drive.drive(run, sampler, steps, prompt, follow, lambda ids: count(1))
        if self.captured is not None:
            session.times["recompute"] = drive.recompute_seconds(loaded, state, 5)
        session.say.done(
            f"{machine.many(path.fed.shape[1], 'step')}{', the end' if path.ended else ''}"
        )
        return path

    def judge(self, restored: Restored, state: State) -> Judgement:
        """Continue `restored` along the uninterrupted run of the unpruned `state`, and judge it."""
        rows = state.branched(self.session.cfg.cache.branches)  # one copy of the K/V
        reference = self.uninterrupted(rows)
        say, compiled, cache = self.session.say, compiling(), self.session.cfg.cache.name
        say.stage(f"restored run, cache {cache}")
        with progress.counting("restored run", reference.fed.shape[1]) as count:
            _, path = self.go_on(restored, follow=reference.fed, on_token=lambda ids: count(1))
        warm = f", kernels ready in {took:.1f} s" if (took := compiling() - compiled) > 0.05 else ""  # fmt: skip
        by = f" by {self.record['cache']['served']}" * (cache == "auto")
        say.done(f"{machine.many(path.fed.shape[1], 'step')}{by}, teacher forced{warm}")
        path = comparable(path, reference)
        cfg, tokenizer = self.session.cfg, self.session.loaded.tokenizer
        text = continued(tokenizer, reference.said[0].tolist(), path.said[0].tolist())
        text["ended"] = reference.ended
        self.record.setdefault("text", {}).update(text)
        if self.captured is not None:
            self.record["text"] |= answered(cfg, tokenizer, self.record["text"])
        return self.verdict(rows, reference, path, restored)

    def verdict(
        self, state: State, reference: drive.Rollout, path: drive.Rollout, restored: Restored
    ) -> Judgement:
        """The judgement on `path`, on which `restored` was fed what `reference` was fed after `state`."""
        session, waived = self.session, restored.waived
        session.say.stage("noise floor, oracle, verdict")
        settings, chunk = session.cfg.compare, session.cfg.prompt.chunk
        end, chunks = state.tokens + path.fed.shape[1], reference.chunks
        loaded, small = restored.session.loaded, restored.state
        rest = {"again": False, "small": "bound" in self.record or meant(small)}
        ahead = cost(session.loaded, state.batch, end, settings.oracle, chunks, **rest)
        ahead.announce(session.say.note)
        given = small, self.way
        judgement = judge(session.loaded, state, reference, path, settings, waived, chunk, *given)
        if self.way is not None:
            before = (session.loaded, self.made) if self.made and self.made is not small else None
            judgement = beside(judgement, loaded, small, self.way, path, settings, before)
        if judgement.verdict not in GOOD or judgement.broken:
            lossless = "" if "bound" in self.record else session.cfg.cache.name
            judgement = diagnosed(judgement, loaded, small, waived, reference.fed, lossless)
            self.record["diagnosis"] = judgement.diagnosis
        session.say.done(judgement.verdict)
        return judgement

    def finish(self, judgement: Judgement | None = None, **record: Any) -> Outcome:
        """Write, draw, track and show the record. record: what else it says, or says otherwise."""
        said = (
            {"verdict": UNJUDGED, "reason": reason(Code.NOTHING)}
            if judgement is None
            else judgement.record()
        )
        made = {**said, **self.record, **record}
        if made["verdict"] == UNJUDGED:
            made["reason"] = self.reason(made["reason"])
        return finish_run(self.session, made)

    @property
    def waiver(self) -> dict[str, Any]:
        """What the record says of a restore that waived something, nothing for any other."""
        return {"waived": self.record["waived"]} if self.record.get("waived") else {}

    def reason(self, why: Reason) -> Reason:
        """`why`, and what was waived, for whatever no judgement says it of."""
        rows = [Difference(**row) for row in self.record.get("waived", ())]
        if not rows:
            return why
        waived = reason(Code.WAIVED, count=len(rows), first=str(rows[0]))
        return {**why, "args": {**why["args"], "waived": waived}}
