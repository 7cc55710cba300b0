"""`python -m service` is `freshet`."""

import sys

from service.cli import main

sys.exit(main())
