"""Tenfold: from raw text to pretrained BERT-family encoders."""
