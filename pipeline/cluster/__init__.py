"""The processes of a run: how they meet, agree, stop, and what watches over them."""
