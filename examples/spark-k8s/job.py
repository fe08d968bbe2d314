"""What spark-submit runs: lbd calibrate, with the arguments that stand behind this file's name."""

import sys

from lbd.cli import main

if __name__ == "__main__":
    sys.exit(main())
