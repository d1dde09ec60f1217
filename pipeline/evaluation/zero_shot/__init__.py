"""Sentences and a pretrained model come in, pseudo-log-likelihoods and accuracies go out."""
