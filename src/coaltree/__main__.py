"""`python -m coaltree` is the command `coaltree`."""

from coaltree.cli import main

if __name__ == "__main__":
    main()
