"""Engines under measurement, each in a process of its own: `python -m workers.serve MODULE SETTINGS`.

The modules run in the interpreter of the engine they drive, which need not have kvchat: they import that engine, one
another by relative names, and otherwise the standard library and numpy.
"""
