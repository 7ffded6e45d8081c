"""Charts: plain values, drawn by matplotlib for files or by Plotly for the report."""
