"""Charts: each is made once, as a small value, and drawn by matplotlib for files or by Plotly for the report."""
