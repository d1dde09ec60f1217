"""What preparing a corpus yields and takes, from a sample of it: the estimate of --dry-run."""
