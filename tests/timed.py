"""`python tests/timed.py COMMAND...` runs a command and prints the time that it took.

The CPU time is that of the command and of all processes below it that have been waited for.
"""

import resource
import subprocess
import sys
import time


def main() -> None:
    started_at = time.monotonic()
    code = subprocess.run(sys.argv[1:], check=False).returncode
    elapsed = time.monotonic() - started_at
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{minutes(used.ru_utime + used.ru_stime)} of CPU time, {minutes(elapsed)} by the clock",
        flush=True,
    )
    sys.exit(code)


def minutes(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60} min {int(seconds) % 60:02} s"


if __name__ == "__main__":
    main()
