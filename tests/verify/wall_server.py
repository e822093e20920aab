"""A lock server that counts its ttls by the time of day, which can be set: a control."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from holdfast.runtime import clock
from holdfast.verify.servers.time_of_day import TimeOfDay

if __name__ == "__main__":
    time.time = clock.now = TimeOfDay(Path(sys.argv[1]))
    sys.argv = ["holdfast", *sys.argv[2:]]
    from holdfast.cli.main import main

    main()
