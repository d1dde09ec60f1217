"""Files of tasks, as published or a user's own -> examples."""
