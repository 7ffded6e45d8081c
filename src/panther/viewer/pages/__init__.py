"""One module per page: its data as JSON, pictures as bytes. Each has a function of the workbench that returns its routes."""
