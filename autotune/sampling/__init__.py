"""Proposals: samplers, and the models behind them; values in, a configuration out."""
