"""From sources to published shards: what one worker does, and what joins the parts."""
