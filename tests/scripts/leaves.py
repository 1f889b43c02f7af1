"""Says what it was called with, then leaves as its arguments tell: exit code, exception, signal."""

import json
import os
import signal
import sys
from pathlib import Path

print(
    json.dumps({"argv": sys.argv[1:], "cwd": str(Path.cwd()), "file": __file__, "name": __name__})
)
print(json.dumps(sys.stdin.read() if "--read" in sys.argv else ""), flush=True)
if "--wait" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    print("waiting", flush=True)
    signal.pause()
if "--exit" in sys.argv:
    sys.exit(int(sys.argv[-1]))
if "--raise" in sys.argv:
    raise RuntimeError("on purpose")
if "--kill" in sys.argv:
    os.kill(os.getpid(), getattr(signal, sys.argv[-1]))
