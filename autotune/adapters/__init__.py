"""Trainings of other libraries as a model.py, and callbacks that apply a best.yaml there.

A callback never searches: a search starts many trainings in processes of their own, and a callback
lives inside of one.
"""
