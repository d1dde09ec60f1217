"""The machines of a job -> checks with verdicts: what would stop a run, or make it wrong."""
