"""Keeps linear algebra to one thread, here and in the processes that tests start.

Threads that compute together wait for each other, spinning, and the longer the busier the cores
are: on two cores beside other programs, a small step of two threads takes 50 times as long as one
of one thread. conftest imports this before numpy, which looks only once. A test that is about
threads says how many it wants.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
