"""What a model is worth: fine-tuning on labelled tasks, and scores without training."""
