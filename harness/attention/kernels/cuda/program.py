"""The decode kernels, in Triton: which part of the past a program reads, and how the parts come
together. Imported where Triton is there and a step asks for it; decode.py gives the arguments."""

# mypy: disable-error-code=no-untyped-def
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["tokens", "chunk", "first", "splits"])
def attend_part(
    query, key, value, seen, sums, mass, scale,
    tokens, chunk, first, splits,
    branches, group, new, kv_heads,
    query_row, query_head, query_new, key_row, key_head, key_token, value_row, value_head, value_token,
    seen_row, seen_head, seen_new, seen_token,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, TOKENS: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Softmax sums of `chunk` tokens of one part, for up to ROWS query rows that share a KV head.

    Rows are the branches, query heads and new tokens that read the same keys. sums
    `[batch, heads, new, splits, WIDTH]` and mass `[..., splits, 2]`, both float32, are written at
    split `first + program`: values weighted by exp(score - maximum); the maximum, and the sum of weights.
    """
    split = tl.program_id(0)
    row, head = (
        (tl.program_id(1) // kv_heads).to(tl.int64),
        (tl.program_id(1) % kv_heads).to(tl.int64),
    )
    place = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    live = place < branches * group * new
    batch = row * branches + place // (group * new)
    heads = head * group + (place // new) % group
    at = place % new
    width, wide = tl.arange(0, PADDED), tl.arange(0, PADDED) < WIDTH
    rows = batch * query_row + heads * query_head + at * query_new
    held = tl.load(
        query + rows[:, None] + width[None, :], mask=live[:, None] & wide[None, :], other=0.0
    )
    most = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    out = tl.zeros([ROWS, PADDED], tl.float32)
    stop = tl.minimum(split * chunk + chunk, tokens)
    for start in range(split * chunk, stop, TOKENS):
        token = start + tl.arange(0, TOKENS)
        inside = token < stop
        lies = row * key_row + head * key_head + token.to(tl.int64) * key_token
        keys = tl.load(
            key + lies[None, :] + width[:, None], mask=inside[None, :] & wide[:, None], other=0.0
        )
        scores = tl.dot(held, keys) * scale
        counts = inside[None, :] & live[:, None]
        if MASKED:
            marks = batch[:, None] * seen_row + head * seen_head + at[:, None] * seen_new
            marks = seen + marks + token[None, :] * seen_token
            counts = counts & (tl.load(marks, mask=counts, other=0) != 0)
        scores = tl.where(counts, scores, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp(scores - base[:, None])
        kept = tl.exp(most - base)
        lies = row * value_row + head * value_head + token.to(tl.int64) * value_token
        values = tl.load(
            value + lies[:, None] + width[None, :], mask=inside[:, None] & wide[None, :], other=0.0
        )
        out = out * kept[:, None] + tl.dot(weights.to(values.dtype), values)
        total = total * kept + tl.sum(weights, 1)
        most = higher
    left = ((batch * kv_heads * group + heads) * new + at) * splits + first + split
    tl.store(sums + left[:, None] * WIDTH + width[None, :], out, mask=live[:, None] & wide[None, :])
    tl.store(mass + left * 2, most, mask=live)
    tl.store(mass + left * 2 + 1, total, mask=live)


@triton.jit(do_not_specialize=["splits"])
def join_parts(
    sums, mass, out, splits, WIDTH: tl.constexpr, PADDED: tl.constexpr, SPLITS: tl.constexpr
):
    """One row's attention `out` `[..., WIDTH]` from all its splits; zeros where it sees nothing."""
    row = tl.program_id(0).to(tl.int64)
    split, width = tl.arange(0, SPLITS), tl.arange(0, PADDED)
    there, wide = split < splits, width < WIDTH
    most = tl.load(mass + (row * splits + split) * 2, mask=there, other=float("-inf"))
    total = tl.load(mass + (row * splits + split) * 2 + 1, mask=there, other=0.0)
    highest = tl.max(most, 0)
    shares = tl.exp(most - tl.where(highest == float("-inf"), 0.0, highest))
    lies = sums + (row * splits + split)[:, None] * WIDTH + width[None, :]
    part = tl.load(lies, mask=there[:, None] & wide[None, :], other=0.0)
    whole = tl.sum(shares * total, 0)
    mixed = tl.sum(shares[:, None] * part, 0) / tl.where(whole == 0.0, 1.0, whole)
    tl.store(out + row * WIDTH + width, mixed.to(out.dtype.element_ty), mask=wide)
