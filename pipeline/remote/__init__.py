"""Files that publishers list, fetched from their servers or mirrors."""
