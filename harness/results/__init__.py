"""What a run found, as facts: every field once, with how it is called, shown, compared and tracked."""
