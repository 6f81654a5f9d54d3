"""The documentation page of alerts and recording rules, with a runbook for each alert."""

from __future__ import annotations

from dashboards.generate.alerts import ALERTS, Alert
from dashboards.generate.rules import RECORDINGS

HEAD = """<!-- Made by `make dashboards` from the code. Change the code, not this page. -->
# Alerts

`dashboards/alerts.yaml` contains these alerts, and `dashboards/rules.yaml` the recording rules that they need. Load
both into Prometheus (`rule_files`). Each alert has a `severity`, a summary, a description and a `runbook_url`. The
severity is *critical* if results are missing, and *warning* if results are late or some of them are missing.
`runbook_url` is the address of the alert's section on this page. `make dashboards DOCS=https://example.com/alerts`
generates the alerts with another address.

The chart has other thresholds in `monitoring.prometheusRule.thresholds`. With a threshold beyond its bound, an alert
would never fire, or always, so the chart refuses it.

| alert | severity | threshold | bound | for |
| --- | --- | --- | --- | --- |
"""
RULES_HEAD = """## Recording rules

| series | expression |
| --- | --- |
"""
RUNBOOKS = {
    "SkewlessWorkerOverloaded": """
For ten minutes one worker partition received more than 1.5 times the rows of the average worker. If workers are the
bottleneck, the whole pipeline is as slow as this worker. The alert does not fire if the average worker receives fewer
than 100 rows in five minutes, because the difference may then be chance.

- Look at *Load balance*: is there one red line (a hot key), or are there many? *Busy time by stage* in
  *Pipeline* shows how near the busiest worker process is to its limit. With `worker.cost`, it is *Time at work of each
  worker*.
- With `key` a hot key has one worker, with `partial_key` two. Use `even`, or let `skewless plan` compute what each
  grouping would do with this topic. A change of `router.grouping` takes effect when the routers are restarted.
- `splitter.local.mode: buffer` reduces the tuples of a key to one row per commit and pane, however hot the key is.
  With `splitter.local.mode: windows` it is one row per local window, for example of 5 s.
- With `dynamic_key` a hot key gets its workers one by one, a minute apart: see *Workers of the hottest keys*.
""",
    "SkewlessLagGrowing": """
The lag of a stage grows, and the stage would need more than five minutes to process it at its current rate. The alert
also fires if the stage processes nothing.

- In *Pipeline* the first stage with lag is the bottleneck. Downstream stages wait for it.
- Start more processes of that stage (`replicas`), up to the number of its partitions.
- If it is the worker stage and one worker is always busy, see *SkewlessWorkerOverloaded*: more processes do not help
  one hot worker.
- If batches or commits have become slow, look at the broker.
""",
    "SkewlessPartitionStalled": """
A partition has lag and is assigned to a process, but its committed offset has not advanced in five minutes.

- Read the log of the process that shows the partition. Does it abort transactions repeatedly, or restore state?
- An open transaction of another producer blocks read_committed consumers. Its records become readable when it ends, or
  when the broker's `transaction.max.timeout.ms` has passed.
- A partition may wait for others on purpose, if `skewless_join_paused_partitions`,
  `skewless_repartition_paused_partitions` or `skewless_splitter_paused_partitions` is above 0: see
  *SkewlessJoinStopped*, and [Partitions of different speeds](../explanation/time.md#partitions-of-different-speeds).
- If only this process is affected, end it. Another process is assigned its partitions and continues at the committed
  offsets.
""",
    "SkewlessWatermarkStuck": """
The stage receives tuples, but its lowest watermark does not advance, or it has none yet. With `aggregator.emit: final`
no results are written either.

- In *Stage*, *Watermark delay* of the first stage shows the partition with the lowest watermark, which holds back all
  others.
- If that partition is silent and idle partitions are not excluded, set `event_time.idle_timeout_s`. A source partition
  that never had a record also holds back all windows. It has no watermark, so *Watermark delay* does not show it, and
  all partitions downstream of the router are unknown in *Partitions by state*.
- If that partition has records, their event times may not advance: the producer's clock may have stopped, or the wrong
  field may be configured as time.
""",
    "SkewlessDeadLetters": """
A stage refused some records: it could not parse them, or had no use for them. They are in `dead-letters` with their
offset and the reason. All other records are counted.

- Read the topic: the headers contain topic, partition, offset and reason.
- If a limit was too small, raise `splitter.limits` and write the records again with `skewless dead-letters replay`.
- If the format of a producer has changed: the settings by which records are read are fixed once a pipeline has run.
  Start a pipeline of another name, or count everything again (`skewless reset` with `--to-start`).
- At the enricher, a table has no row for the record. Write the row, and replay the record.
- At the aggregator, the windows of tuples have expired: the tuples came too late even for a correction. Raise
  `aggregator.closed_window_retention_s`, and count everything again.
""",
    "SkewlessTransactionsAborted": """
More than one commit in twenty fails. Results stay exact, but the records of these transactions are processed again.

- The log contains the reason: unreachable brokers, a timeout, or a rebalance.
- Two processes with the same `--instance` fence each other. Give each process its own number.
- If commits are slower than `transport.transaction_timeout_s`, use smaller batches or a faster broker.
""",
    "SkewlessStateNearLimit": """
The open windows (or ticks) of a process use more than 80 % of `aggregator.max_state_bytes` (or
`observer.max_state_bytes`). Above the limit an aggregator or ranker exits with code 3, also after each restart, until
its state fits. No data is lost: records that did not fit are not committed and stay in their topic. An observer goes
on, and drops the keys with few tuples. It exits with code 3 only if so many ticks are open that one key of each is too
much.

- Start more aggregator processes, up to one per partition, so that each has fewer partitions. The observer and the
  ranker are always one process.
- Or raise the limit and the memory of the process. A process needs up to twice the limit, plus 200 MB.
- If windows stay open longer than they should, see *SkewlessWatermarkStuck*: one silent partition holds back all
  windows.
- The key may have more values than intended, such as an identifier of each request. Fewer keys, shorter windows
  (`aggregator.window_s`) and more partitions (`topics.aggregator_partitions`) require a new pipeline.
- For a ranker, a lower `aggregator.top.n` helps, in a new pipeline.
- For an observer, longer ticks (`observer.tick_s`), a smaller `event_time.allowed_lateness_s` and fewer partitions
  (`topics.aggregator_partitions`) help. They also require a new pipeline.
""",
    "SkewlessWorkerMissing": """
A worker process is gone and its partitions are not assigned to another process, or Prometheus cannot scrape the
processes that own them.

- Compare the number of running worker processes with the intended number, and start the missing ones.
- After a crash the partitions are assigned to other processes within `transport.session_timeout_s`. This alert means
  that no process was available.
- No data is lost: the tuples stay in `worker-input`.
- If you removed the workers on purpose, for consumers of your own, the alert resolves itself after a day. A pipeline
  that never had workers does not have this alert.
""",
    "SkewlessProcessHung": """
A process commits every `transport.commit_interval_s`, even without input. This process does not commit, so it does not
process its partitions. Its other metrics, including lag, may be outdated and look healthy.

- Do the brokers respond? A commit waits for them. If all processes hang at once, the brokers are the cause.
- `/livez` reports which part does not make progress. On Kubernetes the process is replaced after
  `metrics.liveness_timeout_s`. Elsewhere, end the process: other processes continue at the committed offsets, and no
  data is lost.
- Keep its log and report it: if the brokers were available, this is a bug in Skewless.
""",
    "SkewlessStoreDown": """
No process of the sink is connected to its database. The processes keep their partitions and connect again, with a delay
of 0.1 s that grows to 30 s. `/readyz` answers 503, `/livez` answers 200.

- Read the log: it has the message of the server. Is the server down, read-only, full, or out of connections?
- `skewless sink check` tries a connection of its own.
- Nothing is lost and nothing is stored twice: the results are in `aggregates`, and the offsets are in the database.
""",
    "SkewlessRowsRefused": """
The database refused a value, or a record in `aggregates` is not one of the pipeline. The record is in the table of
refused rows, with its window, key, reason and offset. The name of that table is `sink.table` with the suffix _refused.
All other rows are stored.

- Read the reasons in that table.
- A text with a NUL character does not fit into PostgreSQL, a year after 9999 not into MariaDB and MySQL, and a number
  with more than 38 digits into none. Correct the source, or drop such keys in the splitter.
- To store refused rows after a repair of the table, [fill it again](../how-to/sql.md#fill-the-table-again). If the
  source or a setting was wrong, [count everything again](../how-to/start-again.md#count-everything-again).
- Otherwise delete the rows of the table when you have read them. Nothing else does. `skewless sink check` counts them.
""",
    "SkewlessJoinStopped": """
Everything in a partition of one topic is read, its watermark does not advance, and records of the other topic wait for
it: they might still get a partner. So the join decides nothing further for this partition number. `/readyz` of its
processes names the partitions.

- Does the producer of this topic still run, and does it write to all partitions? *Lag by partition* in *Stage* is
  0 for one that receives nothing.
- If a partition may be silent for long, set `join.idle_timeout_s`. Older records that it receives later are then late.
- In a pipeline whose topics end, the alert is expected. Run the pipeline with `--drain`: the ends are the end of time.
""",
    "SkewlessJoinBufferFull": """
A process of the join holds `join.buffer_records`, or `join.buffer_bytes`. It reads only its slowest partition until
some records are decided.

- If one topic is behind, its lag shrinks and the alert resolves itself: see *Lag by partition* and *Watermark delay* in
  *Stage*.
- Start more processes of the join, up to one per partition number: each holds the records of fewer partitions.
- If `/readyz` says that the records of one window do not fit, no process can continue. Raise the setting that it names
  and the memory of the process, or choose shorter spans in a new pipeline.
""",
    "SkewlessMatchRateFell": """
The share of left records with a partner is below 80 % of that of an hour ago, with at least 100 left records in five
minutes, now and two hours ago.

- Does the right topic contain fewer records? Compare *In and out* in *Stage* with the topics.
- If `skewless_join_late_total` grows, the topics are less in order than the settings tolerate. Late records take no
  part: increase `join.sync_delay_s` (right topic) or `join.window_s` (left topic) in a new pipeline.
- If `skewless_join_unmatched_total` grows on both sides, right records follow later than `join.apart_s`, or the ids or
  times of one topic have changed their format.
""",
    "SkewlessLateTuples": """
More than 0.1 % of the tuples were late for ten minutes, at least ten in five minutes. Late tuples are in no result.
They are in the topic `late`.

- `skewless status` says which value of `event_time.allowed_lateness_s` would be enough. Windows then close later. The
  setting is fixed once a pipeline has run: use it in a pipeline of another name, or count everything again
  (`skewless reset` with `--to-start`).
- One producer whose clock is ahead moves the watermark of its partition forward, and makes the tuples of all others
  late. `event_time.max_ahead_s` limits this.
- After an outage of a producer its old records are late, and the alert resolves itself.
""",
    "SkewlessResultsStale": """
The results are complete up to a time that is more than ten minutes ago, although the splitters read records with newer
event times. In replays of old data the alert does not fire.

- In *Pipeline* look for the first stage with a large *Watermark delay by stage*, and for stages with lag.
- A partition of the source that has no new records holds back all windows: see *SkewlessWatermarkStuck*.
- If `event_time.allowed_lateness_s` is more than the threshold, raise the threshold. With
  `splitter.local.mode: windows`, `splitter.local.window_s` counts, too.
""",
    "SkewlessLatencyHigh": """
For one of a hundred commits of the aggregator it took more than 30 s from the splitter to the merge of the newest
tuple. The wait in the source topic is not included.

- In *Pipeline* see *Lag in time by stage* after the splitter. The stage that is busy all the time (*Busy time by
  stage*) is the bottleneck: see *SkewlessLagGrowing*.
- If all stages are back-pressured, the brokers are slow: see in *Stage* *Time of a commit*, and *Throttling* for a
  quota.
- The clocks of splitters and aggregators may differ.
""",
    "SkewlessMemoryNearLimit": """
A process uses more than 90 % of the memory limit of its container, or of the machine. The kernel kills it above the
limit, and its partitions are then restored elsewhere.

- An aggregator, an observer or a join holds state: see *SkewlessStateNearLimit* and *SkewlessJoinBufferFull*. An
  aggregator needs up to twice `aggregator.max_state_bytes`, plus 200 MB.
- The memory of the other stages does not depend on the data. If it grows for hours at constant load, see *Allocated
  blocks by stage*: that is a bug in Skewless.
- Raise the limit, in the chart with the resources of the stage.
""",
    "SkewlessRestoreSlow": """
A process has spent more than 15 minutes of the last hour on restoring its partitions, and is not ready.

- `skewless_restore_remaining_records` says what it has still to read. If it does not fall, the process waits for
  brokers or for an open transaction: read its log.
- The changelog may be large, because the broker has not compacted it: see the log of its cleaner.
- Start more processes of the stage, so that each restores fewer partitions.
- If the process restarts while it restores, the restore begins again: see its exit code.
""",
    "SkewlessRetentionNear": """
More than half of the records that a log contains are not processed, and retention has already deleted older ones. If
the lag reaches the log start offset, records are lost, and the stage ends with an error instead of skipping them.

- Increase the retention of the topic first.
- Then see *SkewlessLagGrowing*. A stage that does not run has lag, too.
- A pipeline that has just begun to read an old topic from its start has this lag until it has caught up. So has one
  that catches up with a topic of which retention has left little before.
""",
    "SkewlessOffsetsExpiring": """
No process of a stage has run for three days. A broker deletes the committed offsets of a group without members after
seven days by default. The stage then refuses to start, because it cannot know what it has processed.

- Start the stage: an assigned partition commits at once.
- Or raise this time on the brokers: `offsets.retention.minutes`.
- If you removed the pipeline on purpose, `skewless reset` with `--delete` removes its topics and groups. The alert
  resolves itself seven days after the last process.
- For a pipeline that is run with `--drain` from time to time, raise the threshold above the days between two runs.
""",
    "SkewlessStageDown": """
All processes of a stage are gone, or none of them is ready (`/readyz` reports the reason). All downstream stages wait.

- Read the log of the last process that ran. Exit code 2 is an invalid setting, 3 an unreachable broker, 70 a bug with a
  traceback in the log.
- If you removed the pipeline on purpose, the alert resolves itself after an hour. So it does after a run with
  `--drain`, and when `skewless stream` runs instead of the stages. For such pipelines, silence it in Alertmanager.
""",
}


def page() -> str:
    """Return the page."""
    alert_rows = [
        f"| [{alert.name}](#{alert.name.lower()}) | {alert.severity} | {_threshold(alert)} | {_bound(alert)}"
        f" | {alert.for_duration} |\n"
        for alert in ALERTS
    ]
    rule_rows = [f"| `{rule.record}` | `{rule.expr}` |\n" for rule in RECORDINGS]
    return "".join([HEAD, *alert_rows, "\n", *map(_section, ALERTS), RULES_HEAD, *rule_rows])


def _section(alert: Alert) -> str:
    text = RUNBOOKS[alert.name].strip()
    return f"## {alert.name}\n\n{text}\n\n```promql\n{alert.with_threshold(alert.expr)}\n```\n\n"


def _threshold(alert: Alert) -> str:
    return "" if alert.threshold is None else f"{alert.threshold:g}"


def _bound(alert: Alert) -> str:
    return f"{alert.bound.operator} {alert.bound.value:g}" if alert.bound else ""
