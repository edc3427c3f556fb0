"""Entry point of `python -m rota`, which does what the `rota` command does."""

from rota.cli.main import main

if __name__ == "__main__":
    main()
