"""Schemas of the values whose type or range does not follow from their default in `values.yaml`."""

from __future__ import annotations

from typing import Any

from dashboards.generate.alerts import ALERTS, THRESHOLD, Alert
from helm.generate.kubernetes import reference
from skewless.service import STOP_S

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
REMOVABLE_LABELS: Schema = {"type": ["object", "null"], "additionalProperties": {"type": ["string", "null"]}}
"""Labels of which a stage may remove all, or some, by null."""
SCALARS: Schema = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
COUNT: Schema = {"type": "integer", "minimum": 0}
POSITIVE: Schema = {"type": "integer", "minimum": 1}
OPTIONAL_POSITIVE: Schema = {"type": ["integer", "null"], "minimum": 1}
QUANTITY: Schema = {"type": "string", "pattern": r"^[0-9.]+([kMGTPE]i?)?$"}
NAME: Schema = {"type": "string", "pattern": r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"}
"""Schema of a part of the name of a resource in Kubernetes. The chart has a default for an empty one."""
REGISTRY: Schema = {"type": "string", "pattern": "^([^/ ]*[^/: ](/[^ ]*)?)?$"}
"""Schema of the registry of an image: a host, perhaps with a port and a folder, but without a scheme."""
TAG: Schema = {"type": "string", "pattern": "^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"}
SCHEDULE: Schema = {
    "type": "string",
    "pattern": r"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly|every \S+)|[^@\s]\S*(\s+\S+){4})?$",
}
"""Schema of a schedule of a CronJob: five fields, or a name."""
BROKER = "[^@/, ]+"
_KEYWORDS = {"<": "exclusiveMaximum", "<=": "maximum"}
PULL_SECRET: Schema = {
    "type": ["string", "object"],
    "additionalProperties": False,
    "properties": {"name": TEXT},
    "required": ["name"],
}


def _threshold(alert: Alert) -> Schema:
    """Return the schema of a threshold. One that is a number of days in a range of Prometheus must be whole."""
    bound = {_KEYWORDS[alert.bound.operator]: alert.bound.value} if alert.bound else {}
    if f"[{THRESHOLD}d]" in alert.expr:
        return {"type": "integer", "minimum": 1, **bound}
    return {"type": "number", "exclusiveMinimum": 0, **bound}


DURATION: Schema = {"type": "string", "pattern": r"^([0-9]+(ms|s|m|h))*$"}
RELABEL: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "action": TEXT,
        "modulus": POSITIVE,
        "regex": TEXT,
        "replacement": TEXT,
        "separator": TEXT,
        "sourceLabels": TEXTS,
        "targetLabel": TEXT,
    },
}


def list_of(items: Schema) -> Schema:
    """Return the schema of a list of items."""
    return {"type": "array", "items": items}


def choice_of(*values: str) -> Schema:
    """Return the schema of a string with a fixed set of values."""
    return {"type": "string", "enum": list(values)}


PEERS = list_of(reference("networking.v1.NetworkPolicyPeer"))

BY_PATH: dict[str, Schema] = {
    "commonAnnotations": LABELS,
    "commonLabels": LABELS,
    "embeddedKafka.command": TEXTS,
    "embeddedKafka.image.registry": REGISTRY,
    "embeddedKafka.extraConfig": SCALARS,
    "embeddedKafka.persistence.size": QUANTITY,
    "embeddedKafka.port": PORT,
    "embeddedKafka.sourcePartitions": COUNT,
    "extraObjects": list_of({"type": ["object", "string"]}),
    "fullnameOverride": NAME,
    "global.imagePullSecrets": list_of(PULL_SECRET),
    "global.imageRegistry": REGISTRY,
    "image.registry": REGISTRY,
    "imagePullSecrets": list_of(PULL_SECRET),
    "kafka.bootstrapServers": {
        "type": ["string", "array"],
        "pattern": f"^({BROKER}(, *{BROKER})*)?$",
        "items": {"type": "string", "pattern": f"^{BROKER}$"},
    },
    "kafka.extraConfig": SCALARS,
    "kafka.sasl.mechanism": choice_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
    "kafka.securityProtocol": choice_of("", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "kafka.connectTimeoutSeconds": {"type": "number", "exclusiveMinimum": 0, "maximum": 600},
    "join.partitions": OPTIONAL_POSITIVE,
    "mode": choice_of("stages", "single"),
    "metrics.port": PORT,
    "metrics.service.ipFamilies": list_of(choice_of("IPv4", "IPv6")),
    "metrics.service.ipFamilyPolicy": choice_of("", "SingleStack", "PreferDualStack", "RequireDualStack"),
    "monitoring.prometheusRule.disabled": list_of(choice_of(*(alert.name for alert in ALERTS))),
    "monitoring.prometheusRule.thresholds": {
        "type": "object",
        "additionalProperties": False,
        "properties": {alert.name: _threshold(alert) for alert in ALERTS if alert.threshold is not None},
    },
    "nameOverride": NAME,
    "networkPolicy.egress.dnsPorts": {**list_of(PORT), "minItems": 1},
    "networkPolicy.egress.dnsTo": PEERS,
    "networkPolicy.egress.extra": list_of(reference("networking.v1.NetworkPolicyEgressRule")),
    "networkPolicy.egress.kafkaPorts": list_of(PORT),
    "networkPolicy.egress.kafkaTo": PEERS,
    "networkPolicy.egress.databaseTo": PEERS,
    "networkPolicy.egress.registryTo": PEERS,
    "networkPolicy.egress.tokenEndpointTo": PEERS,
    "networkPolicy.metricsFrom": PEERS,
    "podSecurityContext": reference("core.v1.PodSecurityContext"),
    "registry.connectTimeoutSeconds": {"type": "number", "exclusiveMinimum": 0, "maximum": 600},
    "registry.requestTimeoutSeconds": {"type": "number", "exclusiveMinimum": 0, "maximum": 600},
    "registry.url": {"type": "string", "pattern": "^(https?://[^ @]+(, *https?://[^ @]+)*)?$"},
    "securityContext": reference("core.v1.SecurityContext"),
    "serviceAccount.name": NAME,
    "source.partitions": OPTIONAL_POSITIVE,
    "source.skipTo": {"type": "object", "additionalProperties": COUNT},
    "source.start": {"type": ["string", "integer"], "pattern": "^(earliest|latest|[0-9].*)?$", "minimum": 0},
    "source.topics": {
        "type": ["array", "object", "null"],
        "items": {"type": "string", "minLength": 1, "maxLength": 249, "pattern": "^[A-Za-z0-9._-]+$"},
        "properties": {"match": {"type": "string", "minLength": 1}},
        "required": ["match"],
        "additionalProperties": False,
    },
    "source.topic": {"type": "string", "maxLength": 249, "pattern": "^[A-Za-z0-9._-]*$"},
    "spark.activeDeadlineSeconds": OPTIONAL_POSITIVE,
    "spark.conf": SCALARS,
    "spark.image.registry": REGISTRY,
    "spark.memory": {"type": "string", "pattern": "^[0-9]+[kmgt]$"},
    "spark.reports.volume": reference("volume"),
    "spark.ttlSecondsAfterFinished": {"type": ["integer", "null"], "minimum": 0},
    "stageDefaults.affinity": reference("core.v1.Affinity"),
    "stageDefaults.autoscaling.hpa.metrics": list_of(reference("autoscaling.v2.MetricSpec")),
    "stageDefaults.autoscaling.hpa.targetCPUUtilizationPercentage": OPTIONAL_POSITIVE,
    "stageDefaults.autoscaling.keda.activationLagThreshold": COUNT,
    "stageDefaults.autoscaling.keda.lagThreshold": OPTIONAL_POSITIVE,
    "stageDefaults.autoscaling.keda.minReplicas": POSITIVE,
    "stageDefaults.autoscaling.keda.prometheus.lagSeconds": {"type": "number", "exclusiveMinimum": 0},
    "stageDefaults.autoscaling.keda.prometheus.serverAddress": {"type": "string", "pattern": "^(https?://[^ ]+)?$"},
    "stageDefaults.autoscaling.keda.version": {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+){2,3}$"},
    "stageDefaults.autoscaling.hpa.minReplicas": POSITIVE,
    "stageDefaults.envFrom": list_of(reference("core.v1.EnvFromSource")),
    "stageDefaults.extraContainers": list_of(reference("core.v1.Container")),
    "stageDefaults.extraInitContainers": list_of(reference("core.v1.Container")),
    "stageDefaults.nodeSelector": REMOVABLE_LABELS,
    "stageDefaults.persistentVolumeClaimRetentionPolicy": reference(
        "apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy"
    ),
    "stageDefaults.podAnnotations": REMOVABLE_LABELS,
    "stageDefaults.podDisruptionBudget.maxUnavailable": {"type": ["integer", "string", "null"]},
    "stageDefaults.podDisruptionBudget.minAvailable": {"type": ["integer", "string", "null"]},
    "stageDefaults.podDisruptionBudget.unhealthyPodEvictionPolicy": choice_of("", "IfHealthyBudget", "AlwaysAllow"),
    "stageDefaults.podLabels": REMOVABLE_LABELS,
    "stageDefaults.podManagementPolicy": choice_of("OrderedReady", "Parallel"),
    "stageDefaults.replicas": COUNT,
    "stageDefaults.terminationGracePeriodSeconds": {"type": "integer", "minimum": int(STOP_S) + 1},
    "stageDefaults.topologySpreadConstraints": list_of(reference("core.v1.TopologySpreadConstraint")),
    "stageDefaults.updateStrategy": reference("apps.v1.StatefulSetUpdateStrategy"),
    "stageDefaults.volumeClaimTemplates": list_of(reference("core.v1.PersistentVolumeClaim")),
    "tests.records": {**POSITIVE, "maximum": 1_000_000},
    "tests.sendRecords": {"type": ["boolean", "null"]},
    "tests.timeoutSeconds": POSITIVE,
    "topics.create": choice_of("none", "strimzi", "job"),
    "topics.job.activeDeadlineSeconds": POSITIVE,
    "topics.job.backoffLimit": COUNT,
    "topics.job.ttlSecondsAfterFinished": COUNT,
    "users.create": choice_of("none", "strimzi"),
}
"""Full path of a value -> schema. Takes precedence over `BY_SUFFIX`."""

BY_SUFFIX: dict[str, Schema] = {
    "additionalLabels": LABELS,
    "affinity": reference("core.v1.Affinity"),
    "annotations": LABELS,
    "args": TEXTS,
    "behavior": reference("autoscaling.v2.HorizontalPodAutoscalerBehavior"),
    "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "extraEnv": list_of(reference("core.v1.EnvVar")),
    "extraVolumeMounts": list_of(reference("core.v1.VolumeMount")),
    "extraVolumes": list_of(reference("core.v1.Volume")),
    "heap": {"type": "string", "pattern": "^[0-9]+[kmg]$"},
    "interval": DURATION,
    "livenessProbe": reference("probe"),
    "maxReplicas": OPTIONAL_POSITIVE,
    "metricRelabelings": list_of(RELABEL),
    "nodeSelector": LABELS,
    "podAnnotations": LABELS,
    "podLabels": LABELS,
    "podTargetLabels": TEXTS,
    "pullPolicy": choice_of("Always", "IfNotPresent", "Never"),
    "readinessProbe": reference("probe"),
    "relabelings": list_of(RELABEL),
    "resources": reference("core.v1.ResourceRequirements"),
    "schedule": SCHEDULE,
    "scrapeTimeout": DURATION,
    "startupProbe": reference("probe"),
    "tag": TAG,
    "targetLabels": TEXTS,
    "tmpSizeLimit": QUANTITY,
    "tolerations": list_of(reference("core.v1.Toleration")),
}
"""Last name of a path -> schema."""
