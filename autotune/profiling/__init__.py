"""The profile of a child: each stage of training alone, and its operators."""
