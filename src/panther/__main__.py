"""Lets `python -m panther` do what `panther` does."""

from panther.cli import main

if __name__ == "__main__":
    main()
