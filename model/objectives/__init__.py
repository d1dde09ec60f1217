"""The loss of each objective: hidden vectors and labels come in, sums and their FLOPs go out."""
