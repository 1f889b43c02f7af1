"""Children: starting, watching and ending them; or answering from a recorded table."""
