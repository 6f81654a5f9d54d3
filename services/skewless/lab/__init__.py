"""Data sets, simulation, demo and local processes: for trials, not for production."""
