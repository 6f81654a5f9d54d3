"""All faults by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from chaos import broker_faults, group_faults, network_faults, process_faults
from chaos.context import ChaosContext

Fault = Callable[[ChaosContext], Iterator[float]]
"""A generator that executes a fault. It yields the number of seconds until it continues."""

FAULTS: dict[str, Fault] = {
    "kill": process_faults.kill,
    "kill-all": process_faults.kill_all,
    "point": process_faults.kill_at_point,
    "init": process_faults.kill_in_init,
    "abort": process_faults.kill_in_abort,
    "stop": process_faults.stop,
    "stop-point": process_faults.stop_at_point,
    "error": process_faults.error,
    "storm": group_faults.storm,
    "rebalance": group_faults.rebalance_kill,
    "gone": group_faults.gone,
    "twin": group_faults.duplicate,
    "zombie": group_faults.zombie,
    "absence": group_faults.absence,
    "broker-kill": broker_faults.broker_kill,
    "broker-outage": broker_faults.broker_outage,
    "broker-restart": broker_faults.broker_restart,
    "broker-stop": broker_faults.broker_stop,
    "disk": broker_faults.disk_full,
    "retention": broker_faults.retention,
    "hold": network_faults.hold,
    "deaf": network_faults.deaf,
    "reset": network_faults.reset,
    "ghost": network_faults.ghost,
}
