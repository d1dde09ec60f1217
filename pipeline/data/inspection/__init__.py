"""Documents come in, a report of them as text or HTML goes out."""
