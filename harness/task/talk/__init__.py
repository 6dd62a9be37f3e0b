"""A stateful chat: the dialogue itself, the naive twin, and the proof that every turn can be resumed."""
