"""TOVA (Oren et al. 2024): what the last token attended to stays."""

from math import inf

from harness.prune import Policy


class MyTova(Policy):
    observes = 1  # score needs the attention of the last query

    def score(self, layer, rank, keep):
        seen = layer.received.mean(1) if layer.received.dim() == 4 else layer.received
        score = seen[:, -1].double()  # [batch, kept], averaged over the heads
        return score.masked_fill(rank == rank[:, -1:], inf)  # the last token itself
