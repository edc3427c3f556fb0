"""Lets `python -m rota` do what `rota` does."""

from rota.cli.main import main

if __name__ == "__main__":
    main()
