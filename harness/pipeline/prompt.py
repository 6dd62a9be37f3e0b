"""What is read: the declared prompt as text, as ids per batch row, and as element +4."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.config import Config, utf8
from harness.config.place import said_twice
from harness.errors import InputProblem
from harness.pipeline.questions import KINDS, questions
from harness.pipeline.questions.recall import recall_dialogue
from harness.pipeline.questions.score import scores
from harness.snapshot.digest import digest_document
from harness.tokenizer.policy import Encoded, decode, encode


def check_prompt(cfg: Config) -> None:
    """Raise InputProblem, before anything is loaded, for a prompt that cannot be read, is empty or is
    said twice."""
    prompt = cfg.prompt
    if cfg.text is not None:
        said_twice(cfg)
        _refuse_empty(cfg.text, "text=")
    elif prompt.name == "file" and not prompt.ids:
        _refuse_empty(_read(prompt.path), f"prompt.path={prompt.path}")
    elif prompt.name == "text" and not prompt.ids and prompt.text is not None:
        _refuse_empty(prompt.text, "prompt.text=")
    elif prompt.name == "jsonl":
        questions(prompt, None)


def _refuse_empty(text: str, where: str) -> None:
    if not text:
        raise InputProblem(f"{where} is empty: there is nothing to read. Give at least one word.")


def prompt_rows(cfg: Config, tokenizer: Any) -> list[Encoded]:
    """The prompt under the tokenizer policy, one entry per batch row.

    Row i of a batch drops the last `5 * i` tokens, so that rows differ and padding is real.
    """
    if cfg.prompt.ids and cfg.text is None:
        whole = encoded_ids(cfg.prompt.ids, tokenizer)
    else:
        text, turns = prompt_text(cfg, tokenizer)
        whole = encode(cfg.tokenizer, tokenizer, text, turns)
    rows = [whole]
    for row in range(1, cfg.prompt.batch):
        length = len(whole.ids) - 5 * row
        if length < whole.prefix + 1:
            raise InputProblem(
                f"prompt.batch={cfg.prompt.batch} needs a longer prompt: row {row} would be empty."
            )
        rows.append(replace(whole, ids=whole.ids[:length]))
    return rows


def encoded_ids(ids: list[int], tokenizer: Any) -> Encoded:
    """`prompt.ids` as they are: nothing is added, no special token is accounted for."""
    if max(ids) >= len(tokenizer):
        known = f"the tokenizer knows ids below {len(tokenizer)}"
        raise InputProblem(f"prompt.ids has {max(ids)}: {known}.")
    return Encoded(tuple(ids), decode(tokenizer, ids), "ids")


def prompt_text(cfg: Config, tokenizer: Any = None) -> tuple[str, list[dict[str, str]]]:
    """`(text, turns)` of the prompt; `text=` replaces whatever the prompt group says."""
    prompt = cfg.prompt
    if cfg.text is not None:
        return cfg.text, []
    if prompt.name == "recall":
        dialogue = recall_dialogue(prompt, chat=cfg.tokenizer.name == "chat")
        return dialogue.text, list(dialogue.turns)
    if prompt.name in ("jsonl", "needle", "multi_key", "variable_tracking"):
        first = questions(prompt, tokenizer)[0]
        return first.context + first.asked, []
    if prompt.name == "file":
        return _read(prompt.path), []
    if prompt.turns:
        return " ".join(t["content"] for t in prompt.turns), prompt.turns
    if prompt.text is None:
        raise InputProblem(f"prompt={prompt.name} has no text. Give text=... or prompt.text=...")
    return prompt.text, []


def taken(cfg: Config) -> dict[str, str]:
    """Which of several questions of a file the main line reads, in words; nothing of any other prompt."""
    prompt = cfg.prompt
    if cfg.text is not None or prompt.ids or prompt.name != "jsonl":
        return {}
    if (count := len(questions(prompt, None))) == 1:
        return {}
    return {"taken": f"question 1 of {count} in {prompt.path} (task=evaluate asks all)"}


def answered(cfg: Config, tokenizer: Any, text: Mapping[str, Any]) -> dict[str, Any]:
    """The expected answer, and whether `continuation` and `restored` of `text` have it in them;
    nothing where the prompt asks nothing."""
    prompt = cfg.prompt
    if cfg.text is not None or prompt.ids or prompt.name not in KINDS:
        return {}
    question = questions(replace(prompt, samples=1), tokenizer)[0]
    runs = ("continuation", "restored")
    right = {f"{run}_right": bool(scores(text[run], question)["contains"]) for run in runs}
    return {"expected": question.expected, **right}


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


def _read(path: str | None) -> str:
    if not path:
        raise InputProblem("prompt=file needs prompt.path=FILE, a UTF-8 text file.")
    return utf8.read(path)
