"""Version of autotune, importable without the whole package."""

__version__ = "0.1.0"
