"""Keys and values that are off by a little everywhere: no number by more than rounding may, all of them by more
than rounding adds up to.

The largest of some thousand roundings says little of the rest: eight times that is half of a usual value, in
bfloat16 and 28 layers deep. Two measures per head are tighter. How far its numbers are off on average (root mean
square): of many roundings that hardly varies from one order of the same sums to another. And how far they are off
along themselves: rounding is as often up as down, so its sum cancels, where a scale adds up.
"""

from collections.abc import Mapping, Sequence
from math import sqrt

import torch

from harness.compare.picture import MARGIN

KINDS = RMS, ALONG = "rms", "along"
FACTOR = {RMS: 4.0, ALONG: MARGIN}  # how often the noise of either may be exceeded
FINE = 1e-4  # of a type that rounds less, the largest number alone tells more than one part in a thousand

Spread = Mapping[str, torch.Tensor]  # `[kv_heads]` for each of KINDS, in parts of the numbers' size


def told(dtype: torch.dtype) -> bool:
    """Whether numbers of `dtype` are so coarse that these measures tell more than the largest gap."""
    return dtype.is_floating_point and torch.finfo(dtype).eps > FINE


def spread(ours: torch.Tensor, right: torch.Tensor, real: torch.Tensor) -> Spread:
    """How far `ours` is from `right`, both `[batch, kv_heads, tokens, head_dim]`, head by head; along with its
    sign. real: `[batch, 1 or kv_heads, tokens]`, False for padding."""
    dims, shown = (0, 2, 3), real[..., None].to(right.device)
    expected = right.double() * shown
    gap = ours.to(right.device).double() * shown - expected
    size = expected.square().sum(dims).clamp(min=1e-300)
    along = (gap * expected).sum(dims) / size
    return {RMS: (gap.square().sum(dims) / size).sqrt(), ALONG: along}


def floors(seen: Sequence[Spread], tokens: int, dtype: torch.dtype) -> dict[str, float]:
    """The noise of each of KINDS: the largest that was `seen` in any head between plain paths over `tokens`, and
    what one rounding makes of every number at least."""
    half = torch.finfo(dtype).eps / 2
    least = {RMS: half, ALONG: half / sqrt(max(tokens, 1))}
    return {k: max([least[k], *(float(one[k].abs().max()) for one in seen)]) for k in KINDS}


def beyond(seen: Spread, floor: Mapping[str, float]) -> tuple[str, int] | None:
    """`(kind, head)` of the first head that is further off than FACTOR times its noise; None where none is."""
    for kind in reversed(KINDS):  # a scale is the better word where it is one
        wrong = ~(seen[kind].abs() <= FACTOR[kind] * floor[kind])
        if bool(wrong.any()):
            return kind, int(wrong.nonzero()[0, 0])
    return None


def said(part: str, kind: str, head: int, layer: int, off: float, floor: float) -> str:
    """What `beyond` found, in words. off: by how much, along with its sign."""
    limit = FACTOR[kind] * floor
    if kind == ALONG:
        return (
            f"the {part}s of layer {layer}, head {head} are {1 + off:.4g} times what they should be, rounding explains "
            f"{limit:.2g} more or less"
        )
    return (
        f"the {part}s of layer {layer}, head {head} are off by {off:.2%} of their size (root mean square), rounding "
        f"explains {limit:.2%}"
    )
