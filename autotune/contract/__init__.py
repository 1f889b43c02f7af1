"""The contract of a knob, checked in a live process: for knobs of autotune and of a model.py."""
