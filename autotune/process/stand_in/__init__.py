"""A folder for PYTHONPATH: it holds nothing but a stand-in for this package."""
