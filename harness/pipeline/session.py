"""What every task begins with: seeds, threads, the model, the prompt as ids, the documents."""

import random
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from harness.capture import Captured, capture, pad_left
from harness.capture.observe import observing, received
from harness.errors import InputProblem
from harness.model.loaded import Loaded, load
from harness.model.sampler import Sampler
from harness.pipeline.environment import environment
from harness.pipeline.prune import observes
from harness.save import store
from harness.snapshot.coherence import buffer_document
from harness.snapshot.digest import digest_document
from harness.tokenizer import state as tokenizer_state
from harness.tokenizer.policy import Encoded, encode

WRITING = ("save", "prune", "resume", "loop")  # `out=` names one snapshot


@dataclass
class Session:
    """One job: its checked config, its run directory and the model it works on."""

    cfg: Any
    folder: Path
    loaded: Loaded
    say: Any
    times: dict[str, float] = field(default_factory=dict)

    @classmethod
    def open(cls, cfg: Any, folder: Path, say: Any) -> "Session":
        """Seed, set threads, load the model (shared between jobs of one process)."""
        seed(cfg.seed)
        if cfg.out and cfg.task.name in WRITING:
            store.check_place(cfg.out)
        own = default_threads()
        torch.set_num_threads(cfg.threads or own)
        say.stage(f"model {cfg.model.name}")
        loaded = load(cfg.model, cfg.dtype, cfg.device)
        say.done(f"{_parameters(loaded.model)} parameters, {cfg.dtype}, {loaded.device}")
        return cls(cfg, folder, loaded, say, {"load_model": loaded.seconds})

    def encoded(self) -> list[Encoded]:
        """The prompt under the tokenizer policy, one entry per batch row.

        Row i of a batch drops the last `5 * i` tokens, so that rows differ and padding is real.
        """
        cfg = self.cfg
        text, turns = prompt_text(cfg)
        whole = encode(cfg.tokenizer.name, self.loaded.tokenizer, text, turns, cfg.tokenizer.bos)
        rows = [whole]
        for row in range(1, cfg.prompt.batch):
            keep = len(whole.ids) - 5 * row
            if keep < whole.prefix + 1:
                raise InputProblem(
                    f"prompt.batch={cfg.prompt.batch} needs a longer prompt: row {row} would be empty."
                )
            rows.append(Encoded(whole.ids[:keep], whole.text, whole.policy, whole.account, whole.prefix))  # fmt: skip
        return rows

    def capture(self, rows: list[Encoded], sampler: Sampler) -> Captured:
        """Prefill and collect the State, with the documents of tokenizer, prompt and sampler."""
        pad = self.loaded.tokenizer.pad_token_id or 0
        ids, mask = pad_left([r.ids for r in rows], pad)
        documents = {**self.documents, "prompt_meta": prompt_meta(rows[0], self.loaded.tokenizer)}
        documents["prompt_meta"]["buffer"] = buffer_document(ids)
        documents["generation"] = {"sampler": sampler.document(), "steps": 0}
        with observing(self.loaded, observes(self.cfg.prune)) as seen:
            captured = capture(
                self.loaded, ids, mask, documents, tokenizer_files(self.loaded), sampler.rng,
                self.cfg.prompt.chunk,
            )  # fmt: skip
        self.times["prefill"] = captured.prefill_s
        return replace(captured, state=received(captured.state, seen))

    @property
    def documents(self) -> dict[str, Any]:
        """Identity documents of model and tokenizer."""
        return {**self.loaded.documents, "tokenizer": tokenizer_document(self.loaded)}

    def environment(self) -> dict[str, Any]:
        attention = str(self.loaded.text_config._attn_implementation)
        return environment(self.cfg, str(self.loaded.device), attention)


@cache
def default_threads() -> int:
    """Torch's own choice, kept so that one job's `threads=N` does not reach the next."""
    return torch.get_num_threads()


def seed(value: int) -> None:
    """Every generator that a library might use."""
    random.seed(value)
    torch.manual_seed(value)


def prompt_text(cfg: Any) -> tuple[str, list[dict[str, str]]]:
    """`(text, turns)` of the prompt; `text=` replaces whatever the prompt group says."""
    prompt = cfg.prompt
    if cfg.text is not None:
        return cfg.text, []
    if prompt.name == "recall":
        dialogue = recall_dialogue(prompt, chat=cfg.tokenizer.name == "chat")
        return dialogue.text, list(dialogue.turns)
    if prompt.name == "file":
        return _read(prompt.path), []
    if prompt.turns:
        return " ".join(t["content"] for t in prompt.turns), prompt.turns
    if prompt.text is None:
        raise InputProblem(f"prompt={prompt.name} has no text. Give text=... or prompt.text=...")
    return prompt.text, []


def recall_dialogue(prompt: Any, chat: bool) -> Any:
    """The held-out dialogue that a PromptConfig declares, in plain or in chat form."""
    from harness.model.assets import corpus

    make = corpus.recall_chat if chat else corpus.recall_dialogue
    try:
        return make(random.Random(prompt.seed), prompt.distance, prompt.definitions)
    except (ValueError, IndexError) as problem:
        raise InputProblem(
            f"prompt=recall has no dialogue with prompt.distance={prompt.distance} and "
            f"prompt.definitions={prompt.definitions}: {problem}. Distances are 0, or 4 and more "
            "(6, or 10 and more with tokenizer=chat)."
        ) from None


def prompt_meta(row: Encoded, tokenizer: Any) -> dict[str, Any]:
    """Element +4: what stands before the user's words, and every special token with its reason."""
    return {
        "policy": row.policy,
        "prefix_ids": list(row.ids[: row.prefix]),
        "prefix": tokenizer.decode(list(row.ids[: row.prefix])) if row.prefix else "",
        "special_tokens": [dict(entry) for entry in row.account],
        "turns": [dict(turn) for turn in row.turns],
        "text_digest": digest_document(row.text),
    }


def tokenizer_document(loaded: Loaded) -> dict[str, Any]:
    """Fingerprint of the tokenizer, computed once per loaded model."""
    held = loaded.__dict__.setdefault("_tokenizer_document", None)
    if held is None:
        held = loaded.__dict__["_tokenizer_document"] = tokenizer_state.document(loaded.tokenizer)
    return held


def tokenizer_files(loaded: Loaded) -> Any:
    """The tokenizer's files, collected once per loaded model."""
    held = loaded.__dict__.setdefault("_tokenizer_files", None)
    if held is None:
        held = MappingProxyType(tokenizer_state.files(loaded.tokenizer))
        loaded.__dict__["_tokenizer_files"] = held
    return held


def _read(path: str | None) -> str:
    if not path:
        raise InputProblem("prompt=file needs prompt.path=FILE, a UTF-8 text file.")
    try:
        return Path(path).expanduser().read_bytes().decode("utf-8-sig")  # line ends as they are
    except (OSError, UnicodeDecodeError) as problem:
        raise InputProblem(f"prompt.path={path} cannot be read as UTF-8 text: {problem}") from None


def _parameters(model: Any) -> str:
    count = sum(p.numel() for p in model.parameters())
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.2f}{unit}"
    return str(count)
