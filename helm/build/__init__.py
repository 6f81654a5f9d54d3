"""Makes what the chart has from the code: the stages and topics, the schema of the values, dashboards and rules."""
