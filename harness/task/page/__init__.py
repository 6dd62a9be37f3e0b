"""The page of `task=ui`: `desk` is the work without a page, `shelf` the snapshots by name, `picture`
draws, `layout` is the only file that knows gradio."""
