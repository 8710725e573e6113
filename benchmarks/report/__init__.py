"""Reports: what an evaluation came to, as tables, charts, pages and files."""
