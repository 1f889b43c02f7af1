"""The numerical check of a child: the same steps under two configurations, compared."""
