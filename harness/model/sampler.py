"""Choose the next token: the most probable one, or one drawn, after the library's own processors.

Drawing happens on CPU in float32 from a generator of its own, so that its whole state is a few
thousand bytes that travel with the snapshot and continue bit-identically on any device.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from harness.config import SamplingConfig
from harness.errors import ConfigProblem, InputProblem
from harness.model.ending import Ended, Ending
from harness.snapshot.state import State

DOCUMENTED = ("name", "temperature", "top_k", "top_p", "repetition_penalty")  # whatever they say
NEVER = Ending()


class Sampler:
    """settings: a SamplingConfig, `greedy` or `sample`. rng: generator state `[n]` uint8, or None to
    start from `seed`. ending: where a row ends, nowhere by default."""

    def __init__(
        self,
        settings: SamplingConfig,
        seed: int = 0,
        rng: torch.Tensor | None = None,
        ending: Ending = NEVER,
    ):
        self.settings, self.ending = settings, ending
        self.greedy = settings.name == "greedy"
        self._generator = torch.Generator().manual_seed(
            settings.seed if settings.seed is not None else seed
        )
        if rng is not None:
            self._generator.set_state(rng.cpu().clone())
        self._ended: Ended | None = None
        self._processors = processors(settings, ending, 1) if not self.greedy else None

    @property
    def rng(self) -> torch.Tensor:
        """State of the generator, `[n]` uint8; a copy."""
        return self._generator.get_state()

    @property
    def plain(self) -> bool:
        """Whether the most probable token is chosen, whatever went before."""
        return self.greedy and not self.settings.scores()

    def begin(self, state: State, added: int = 0) -> None:
        """Be ready to continue `state` and `added` tokens of new text behind it.

        With new text a continuation begins behind it; without, the one goes on that `state` paused:
        its new tokens are counted, and its stop texts looked for, from where it began.
        """
        saved = state.documents.get("generation", {}).get("begun")
        tokens = state.tokens + added
        self._begin(tokens if added or saved is None else min(saved, tokens), state.attention_mask)

    def _begin(self, begun: int, mask: torch.Tensor | None) -> None:
        padded = mask is not None and not bool(mask.all())
        self._ended = Ended(self.ending, begun)
        self._processors = processors(self.settings, self.ending, begun, mask if padded else None)

    def ended(self, ids: torch.Tensor) -> torch.Tensor:
        """`[batch]` bool: which rows of `ids` `[batch, tokens]` have ended since the beginning."""
        if self._ended is None:
            self._begin(ids.shape[1], None)
        assert self._ended is not None
        return self._ended.rows(ids)

    def probabilities(self, logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """`[batch, vocab]` float32 on CPU, of the scores that the processors leave.

        logits: `[batch, vocab]`; ids: `[batch, tokens]`, everything so far.
        """
        return self._scores(logits, ids).softmax(-1)

    def choose(self, logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Next ids `[batch, 1]` int64 on CPU; of a row that has ended, padding. Advances the
        generator unless greedy. Raises InputProblem where it is to draw of logits that are no numbers."""
        ended = self.ended(ids)
        if self.plain:
            token = logits.argmax(-1, keepdim=True).cpu()
        elif self.greedy:
            token = self._scores(logits, ids).argmax(-1, keepdim=True)
        else:
            shares = self.probabilities(logits, ids)
            if not bool(shares.isfinite().all()):
                kind = str(logits.dtype).removeprefix("torch.")
                other = "dtype=bfloat16 or dtype=float32" if kind == "float16" else "another dtype"
                raise InputProblem(
                    f"after {ids.shape[1]} tokens the logits are NaN or infinite in {kind}, so no token can be drawn of "
                    f"them. Use {other}, or sampling=greedy, whose verdict tells of it."
                )
            token = torch.multinomial(shares, 1, generator=self._generator)
        return token.masked_fill(ended[:, None], self.ending.pad) if bool(ended.any()) else token

    def paused(self, state: State, rng: torch.Tensor | None = None) -> State:
        """`state` with these settings and the generator `rng` (default: as it stands), so that what
        is loaded goes on from there; one that has ended leaves no beginning."""
        rng = self.rng if rng is None else rng
        ended = self._ended
        open_ = ended is not None and not bool(ended.rows(state.token_ids).all())
        begun = {"begun": ended.begun} if ended is not None and open_ else {"begun": None}
        generation = {"sampler": self.document(), **begun}
        return replace(state, rng=rng).document("generation", **generation)

    def document(self) -> dict[str, Any]:
        """JSON-able sampler settings, part of element 13."""
        always = {key: getattr(self.settings, key) for key in DOCUMENTED}
        return {**always, **self.settings.told()}

    def _scores(self, logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        scores = logits.detach().float().cpu()
        if not self._processors:
            return scores
        try:
            return self._processors(ids.cpu(), scores.clone())
        except (ValueError, IndexError) as problem:  # ids that this vocabulary does not have
            raise ConfigProblem(f"sampling={self.settings.name}: {problem}") from problem


def processors(
    settings: SamplingConfig, ending: Ending, begun: int, mask: torch.Tensor | None = None
) -> Any:
    """The library's processors in the library's order, as `generate` builds them.

    begun: tokens of the context; mask: `[batch, tokens]`, where rows are padded. Raises ConfigProblem
    for values that they refuse.
    """
    scores = settings.scores()
    if not scores:
        return None
    from transformers import GenerationConfig, GenerationMixin

    ends = torch.tensor(sorted(ending.ids)) if ending.ids else None
    host = SimpleNamespace(
        config=SimpleNamespace(is_encoder_decoder=False),
        _merge_criteria_processor_list=lambda ours, others: ours,
    )
    try:
        wanted = GenerationConfig(do_sample=settings.name != "greedy", **scores)
        wanted._eos_token_tensor = ends
        kwargs = {} if mask is None else {"attention_mask": mask.cpu()}
        return GenerationMixin._get_logits_processor(
            host, wanted, input_ids_seq_length=begun, device="cpu", model_kwargs=kwargs
        )
    except (ValueError, TypeError) as problem:
        raise ConfigProblem(f"sampling={settings.name}: {problem}") from problem
