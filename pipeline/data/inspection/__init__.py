"""Documents -> a report as text or HTML."""
