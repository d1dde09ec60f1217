"""Ranks: how they meet, the DeepSpeed engine, and what watches over them."""
