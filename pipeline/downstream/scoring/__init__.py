"""Predictions -> scores."""
