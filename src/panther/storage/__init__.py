"""Reading and writing of files: bags, tables, embeddings, prototypes."""
