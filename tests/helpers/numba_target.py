"""Loads what compiled code needs at the first call of each process, for a host whose processes are forked."""

from numba.core.registry import cpu_target

cpu_target.target_context.refresh()
