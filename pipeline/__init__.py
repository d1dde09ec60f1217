"""Tenfold: from raw text to pretrained BERT-family encoders."""

__version__ = "0.2.0"
