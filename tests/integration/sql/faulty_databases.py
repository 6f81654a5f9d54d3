"""Gives the databases of a process fault points in their transactions. The host of the sinks imports it.

The files that arm them are those of `chaos.faults.fault_points`.
"""

from __future__ import annotations

import confluent_kafka

from chaos.faults.fault_points import Points
from integration.sql.faulty_sink import install
from skewless.sql.dialects import DATABASES

points = Points(confluent_kafka)
for dialect in list(DATABASES):
    DATABASES[dialect] = install(DATABASES[dialect], points)
