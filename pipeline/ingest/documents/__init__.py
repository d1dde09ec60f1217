"""Files of any format -> `Record`s of raw text."""
