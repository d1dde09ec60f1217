"""Files of RUN other than checkpoints: run.json, metrics, lease, profile."""
