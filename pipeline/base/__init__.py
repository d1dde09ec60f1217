"""What every room shares: errors, files, folders that appear whole, and the ways of commands."""
