"""The page of alerts and recording rules for the documentation: what each alert means, and what to do."""

from __future__ import annotations

from dashboards.build.alerts import ALERTS, Alert
from dashboards.build.rules import RECORDINGS

HEAD = """<!-- Made by `make dashboards` from the code. Change the code, not this page. -->
# Alerts

`dashboards/alerts.yaml` has these alerts, `dashboards/rules.yaml` the recording rules that they need. Load both into
Prometheus (`rule_files`). Each alert has a `severity` (*critical*: results do not come; *warning*: they come late, or
some of them do not), a summary, a description, and as `runbook_url` the address of its section here;
`make dashboards DOCS=https://example.com/alerts` makes them with an address of your own.

| alert | severity | for |
| --- | --- | --- |
"""
RECORDED = """## Recording rules

| series | expression |
| --- | --- |
"""
RUNBOOKS = {
    "SkewlessWorkerOverloaded": """
For ten minutes one worker partition got more than 1.5 times the tuples of the average one. If workers are the
limit, the whole pipeline goes no faster than this worker. Where the average worker gets less than 100 tuples in five
minutes nothing is said: there it may be chance.

- Look at *Load balance*: is it one bright line (a hot key), or many? *Time at work of each worker* tells how near the
  worker is to its limit.
- With `key` a hot key has one worker, with `partial_key` two, and no more: take `even`, or ask `skewless plan` what
  each grouping would do with this topic. A change of `router.grouping` takes effect with a restart of the routers.
- With `dynamic_key` a hot key gets its workers one by one, a minute apart: see *Workers of the hottest keys*.
""",
    "SkewlessLagGrowing": """
The lag of a stage grows, and what lies in front of it is more than five minutes of work at its present pace.
With nothing processed at all that is for ever.

- In *Pipeline* the first stage with lag is the narrow one; those behind it wait.
- Start more processes of that stage (`replicas`), up to the number of its partitions.
- If it is the worker stage and one worker is at work all the time, see *SkewlessWorkerOverloaded*: more
  processes do not help one hot worker.
- If batches or commits have become slow, look at the broker.
""",
    "SkewlessPartitionStalled": """
A partition has records that nobody has committed in five minutes, although a process owns it.

- Read the log of the process that shows the partition: is it rewinding again and again, or restoring?
- An open transaction of a foreign producer holds readers back: its records become readable when it ends, or
  when the broker's `transaction.max.timeout.ms` is over.
- If only this process is affected, end it: another takes its partitions over, exactly where it was.
""",
    "SkewlessWatermarkStuck": """
Tuples come, but the lowest watermark does not move, or there is none yet. With `aggregator.emit: final` no result
comes either.

- *Watermark delay* of the first stage shows which partition holds it: the one furthest behind the newest event time.
- It is silent, and idle partitions are not excluded: set `event_time.idle_timeout_s`. A partition of the source that
  never had a record holds all windows too: it has no watermark, so *Watermark delay* does not have it, and all
  partitions behind the router are unknown in *Partitions by state*.
- Or its times do not go on: a producer with a clock that stands, or the wrong field as time.
""",
    "SkewlessDeadLetters": """
Records could not be read. They are in `dead-letters` with their place and the reason; all others are counted.

- Read the topic: the headers name topic, partition, offset and reason.
- If a producer's format has changed, change `splitter` to read it, and send the dead letters again.
""",
    "SkewlessTransactionsAborted": """
More than one commit in twenty fails. Results stay exact, but what was in these transactions is done again.

- The log names the reason: brokers that are not reachable, a time-out, a rebalance.
- Two processes with the same `--instance` fence each other: give each a number of its own.
- Commits that are slower than `transport.transaction_timeout_s` want smaller batches or a faster broker.
""",
    "SkewlessStateNearLimit": """
The open windows (or ticks) of a process hold more than 80 % of `aggregator.max_state_bytes` (or
`observer.max_state_bytes`). Beyond the limit the process ends with exit code 3, and again after each restart, until
there is room. Nothing is lost: what it could not hold is not committed, and waits in `partials`.

- Start more aggregator processes, up to one for each partition: each then holds fewer partitions. The observer is one
  process.
- Or raise the limit, and the memory of the process with it: it takes up to twice the limit, and 200 MB.
- Do windows stay open longer than they should? See *SkewlessWatermarkStuck*: one silent partition holds all of them.
- Has the key more values than you meant, as an identifier of each request? Fewer keys, shorter windows
  (`aggregator.window_s`) and more partitions (`topics.aggregator_partitions`) are settings of a new pipeline.
""",
    "SkewlessWorkerMissing": """
A worker process is gone and nobody has taken its partitions over, or the processes that have them do not answer
to Prometheus.

- Are there as many worker processes as there should be? Start the missing one.
- After a crash others take over within `transport.session_timeout_s`; this alert means that nobody did.
- Nothing is lost: the tuples wait in `worker-input`.
- Where workers were taken away on purpose, for consumers of your own, the alert ends by itself after a day. A pipeline
  that never had workers has no such alert.
""",
    "SkewlessProcessHung": """
A process commits every `transport.commit_interval_s`, also when there is nothing to do. This one does not, so its
partitions stand still, and its other metrics, lag among them, may be old: read by themselves they look well.

- Do the brokers answer? A commit waits for them; with all processes at once it is the brokers.
- `/livez` names what has not moved. Where something acts on it (Kubernetes does), the process is replaced after
  `metrics.stuck_after_s`; else end it: others take over what was committed, and nothing is lost.
- Keep its log, and report it: without brokers that are away, this is a mistake in Skewless.
""",
    "SkewlessStageDown": """
All processes of a stage are gone, or none of them is ready (`/readyz` says why). All stages behind it wait.

- Read the log of the last one that ran: exit code 2 is a mistake in the settings, 3 an unreachable broker, 70 a bug.
  The traceback of a bug is in the log.
- If the pipeline was taken away on purpose, the alert ends by itself after an hour.
""",
}


def page() -> str:
    """Write the page."""
    rows = [f"| [{alert.name}](#{alert.name.lower()}) | {alert.severity} | {alert.lasting} |\n" for alert in ALERTS]
    recorded = [f"| `{rule.record}` | `{rule.expr}` |\n" for rule in RECORDINGS]
    return "".join([HEAD, *rows, "\n", *map(_section, ALERTS), RECORDED, *recorded])


def _section(alert: Alert) -> str:
    text = RUNBOOKS[alert.name].strip()
    return f"## {alert.name}\n\n{text}\n\n```promql\n{alert.expr}\n```\n\n"
