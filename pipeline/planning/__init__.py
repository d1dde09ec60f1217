"""A run's settings come in, what each step does goes out: plan, phases, schedule, model."""
