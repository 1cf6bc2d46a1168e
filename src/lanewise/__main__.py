"""`python -m lanewise`: the command line without the installed script."""

import sys

from lanewise.cli import main

if __name__ == "__main__":
    sys.exit(main())
