"""Where faults meet the line: the main task runs one, `task=faults` measures all of them."""
