"""`python -m papers`, from the root of a checkout."""

from papers.commands import main

if __name__ == "__main__":
    main()
