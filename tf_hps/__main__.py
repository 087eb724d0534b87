"""`python -m tf_hps` is `tf-hps`."""

import sys

from tf_hps.tools.main import main

sys.exit(main())
