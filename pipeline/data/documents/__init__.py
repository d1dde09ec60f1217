"""Files of any format come in, `Record`s of raw text go out."""
