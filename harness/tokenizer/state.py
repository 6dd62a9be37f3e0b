"""Tokenizer state (+2): vocabulary, rules, template, and probes of how it really behaves."""

import tempfile
from pathlib import Path
from typing import Any

from harness.snapshot.digest import digest_document
from harness.snapshot.tokenizer import SLOW, digest, template_digest

# texts whose ids differ as soon as a rule, a merge or a special token differs
PROBES = (
    "let k be 5 . what is k ?",
    " leading space, trailing space ",
    "Tabs\tand\nnewlines\r\n\n",
    "CamelCase snake_case 1234567890 3.14159",
    "naïve café, straße, Ελληνικά, русский, 中文, 日本語, العربية",
    "emoji 🙂👩‍🚀 and zero\u200bwidth",
    "<bos><eos><pad><s></s><|endoftext|>",
    "aaaaaaaa bbbb the the the",
)


def document(tokenizer: Any) -> dict[str, Any]:
    """JSON-able identity of `tokenizer`; equal documents encode every probe alike."""
    return {
        "vocabulary": digest_document(sorted(tokenizer.get_vocab().items())),
        "size": len(tokenizer),
        "rules": _rules(tokenizer),
        "special_tokens": {
            name: str(value) for name, value in sorted(tokenizer.special_tokens_map.items())
        },
        "template": template_digest(tokenizer.chat_template),
        "probes": {
            "default": digest_document([tokenizer(p)["input_ids"] for p in PROBES]),
            "plain": digest_document(
                [tokenizer(p, add_special_tokens=False)["input_ids"] for p in PROBES]
            ),
            "decoded": digest_document(
                [tokenizer.decode(range(i, i + 16)) for i in range(0, min(len(tokenizer), 512), 16)]
            ),
        },
    }


def files(tokenizer: Any) -> dict[str, bytes]:
    """What `save_pretrained` writes, as file name -> bytes (flat names only: of several chat templates it
    makes files in a folder, unless it is told to keep them in `tokenizer_config.json`)."""
    one = isinstance(tokenizer.chat_template, str | None)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder, save_jinja_files=one)
        return {
            p.name: p.read_bytes()
            for p in sorted(Path(folder).rglob("*"))
            if p.is_file() and p.parent == Path(folder)
        }


def _rules(tokenizer: Any) -> str:
    """Digest of the rules of a fast tokenizer."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return SLOW if backend is None else digest(backend.to_str())
