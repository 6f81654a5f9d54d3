"""Adapter between the engine and Faust."""
