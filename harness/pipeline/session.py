"""What every task begins with: seeds, threads, the model, its documents, a sampler, a capture."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from harness import extras, progress, variants
from harness.attention.kernels.cpu.program import SLOWER
from harness.capture import Captured, capture, pad_left
from harness.capture.observe import observing, received
from harness.config import Config, SamplingConfig
from harness.model import libraries
from harness.model.build import fetched, resolve_device, stored_in
from harness.model.ending import Ending
from harness.model.generation import absent, declared
from harness.model.loaded import Loaded, load
from harness.model.sampler import Sampler
from harness.pipeline.environment import environment
from harness.pipeline.prompt import check_prompt, prompt_meta, prompt_rows
from harness.pipeline.prune import observes, policy_of
from harness.pipeline.quantize import quantizer_of
from harness.pipeline.restore import floor
from harness.pipeline.sampling import described
from harness.report.terminal.console import Say
from harness.save import store
from harness.save.registry import format_of
from harness.snapshot.coherence import buffer_document
from harness.snapshot.state import State
from harness.tokenizer import state as tokenizer_state
from harness.tokenizer.policy import Encoded, encoder

WRITING = ("save", "prune", "resume", "loop")  # `out=` names one snapshot


@dataclass
class Session:
    """One job: its checked config, its run directory and the model it works on."""

    cfg: Config
    folder: Path
    loaded: Loaded
    say: Say
    times: dict[str, float] = field(default_factory=dict)

    @classmethod
    def open(cls, cfg: Config, folder: Path, say: Say) -> "Session":
        """Check the options, seed, set threads, load the model (shared between jobs of one process)."""
        check_options(cfg)
        seed(cfg.seed)
        if cfg.out and cfg.task.name in WRITING:
            store.check_place(cfg.out)
        if "text" in cfg.task.reads and not cfg.snapshot:
            check_prompt(cfg)
        threads = default_threads()
        torch.set_num_threads(cfg.threads or threads)
        if not libraries.imported():
            say.stage("transformers")
            say.done(libraries.version())
        say.stage(f"model {cfg.model.path or cfg.model.name}")
        if source := fetched(cfg.model):
            say.note(source)
        loaded = load(cfg.model, cfg.dtype, cfg.device)
        if loaded.device.type == "cpu" and extras.missing("kernels"):
            say.once(SLOWER)
        if cfg.dtype == "float32" and (kept := stored_in(cfg.model)) not in (None, cfg.dtype):
            say.note(f"stored as {kept}, run in float32 (dtype={kept} runs it as stored)")
        if said := _wordless(loaded):
            say.note(said)
        if unread := loaded.source.get("unread"):
            say.note(unread)
        say.done(f"{parameters(loaded.model)} parameters, {cfg.dtype}, {loaded.device}")
        session = cls(cfg, folder, loaded, say, {"load_model": loaded.seconds})
        if cfg.sampling.name == "generation_config":
            said = "there is no generation_config.json" if absent(loaded) else "as generation_config.json says"  # fmt: skip
            say.line(f"sampler: {said} ({described(session.sampling)})")
        return session

    def on(self, device: str | None) -> "Session":
        """This job with its model on `device`; the job itself for None and where it is there."""
        if device is None or resolve_device(device).type == self.loaded.device.type:
            return self
        return replace(self, loaded=load(self.cfg.model, self.cfg.dtype, device))

    def encoded(self) -> list[Encoded]:
        """The declared prompt under the tokenizer policy, one entry per batch row."""
        return prompt_rows(self.cfg, self.loaded.tokenizer)

    def sampler(self, state: State | None = None) -> Sampler:
        """Chooses as `sampling` says; goes on with the generator that `state` saved, unless
        `sampling.seed` asks for another."""
        settings = self.sampling
        rng = None if state is None or settings.seed is not None else state.rng
        return Sampler(settings, self.cfg.seed, rng, Ending.of(settings, self.loaded))

    @property
    def sampling(self) -> SamplingConfig:
        """`greedy` or `sample`, with every value: what the model directory says is looked up."""
        settings = self.cfg.sampling
        return declared(self.loaded, settings) if settings.name == "generation_config" else settings

    def capture(self, rows: list[Encoded], sampler: Sampler, finite: bool = True) -> Captured:
        """Prefill and collect the State, with the documents of tokenizer, prompt and sampler. finite: NaN and
        infinity are refused."""
        pad = self.loaded.tokenizer.pad_token_id or 0
        ids, mask = pad_left([r.ids for r in rows], pad)
        documents = {**self.documents, "prompt_meta": prompt_meta(rows[0], self.loaded.tokenizer)}
        documents["prompt_meta"]["buffer"] = buffer_document(ids)
        documents["generation"] = {"sampler": sampler.document(), "steps": 0}
        files, chunk = tokenizer_files(self.loaded), self.cfg.prompt.chunk
        loaded, queries = self.loaded, observes(self.cfg.prune)
        calls = [len(ids) * piece for piece in progress.pieces(ids.shape[1], chunk)]
        counted = progress.passes(loaded.model, loaded.layers, "prefill", calls)
        with counted, observing(loaded, queries) as attention:
            captured = capture(loaded, ids, mask, documents, files, sampler.rng, chunk, finite)
        self.times["prefill"] = captured.prefill_s
        state = received(captured.state, attention)
        if measured := floor(self.loaded, state):
            state = state.document("proof", **measured)
        return replace(captured, state=state)

    @property
    def documents(self) -> dict[str, Any]:
        """Identity documents of model and tokenizer."""
        return {
            **self.loaded.documents,
            "tokenizer": tokenizer_document(self.loaded),
            "source": dict(self.loaded.origin),
        }

    def environment(self) -> dict[str, Any]:
        attention = str(self.loaded.text_config._attn_implementation)
        return environment(self.cfg, str(self.loaded.device), attention)


def check_options(cfg: Config) -> None:
    """What the chosen variants have against their settings, told before any weights are read. Raises
    ConfigProblem and InputProblem."""
    encoder(cfg.tokenizer)
    variants.check("cache", "cache", [cfg.cache.name])
    policy_of(cfg.prune)
    quantizer_of(cfg.quantize)
    format_of(cfg.save)


@cache
def default_threads() -> int:
    """Torch's own choice, kept so that one job's `threads=N` does not reach the next."""
    return torch.get_num_threads()


def one_thread(cfg: Config) -> Config:
    """One thread unless `threads` says otherwise, for tasks of thousands of small operations, which
    wait for each other longer than they compute."""
    return cfg if cfg.threads else replace(cfg, threads=1)


def seed(value: int) -> None:
    """Every generator that a library might use."""
    random.seed(value)
    torch.manual_seed(value)


def tokenizer_document(loaded: Loaded) -> dict[str, Any]:
    """Fingerprint of the tokenizer, computed once per loaded model."""
    return _once(loaded, "_tokenizer_document", lambda: tokenizer_state.document(loaded.tokenizer))


def tokenizer_files(loaded: Loaded) -> Mapping[str, bytes]:
    """The tokenizer's files, collected once per loaded model."""
    collect = tokenizer_state.files
    return _once(loaded, "_tokenizer_files", lambda: MappingProxyType(collect(loaded.tokenizer)))


def _once(loaded: Loaded, name: str, make: Any) -> Any:
    if name not in loaded.__dict__:
        loaded.__dict__[name] = make()
    return loaded.__dict__[name]


def parameters(model: Any) -> str:
    """How many `model` has, as `24.65M`."""
    count = sum(p.numel() for p in model.parameters())
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.2f}{unit}"
    return str(count)


def _wordless(loaded: Loaded) -> str | None:
    """That most of what the model may say has no text, as of a tokenizer that is another model's; None where it has:
    a table of logits is often padded by a few rows."""
    known, ids = len(loaded.tokenizer), int(loaded.text_config.vocab_size)
    if 2 * known >= ids:
        return None
    return (
        f"the tokenizer knows {known:,} of the model's {ids:,} token ids: the others have no text"
    )
