"""What values may be, where `values.yaml` alone does not show it: by path, a `*` stands for one name."""

from __future__ import annotations

from typing import Any

from helm.build.kubernetes import reference

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
SCALARS: Schema = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
COUNT: Schema = {"type": "integer", "minimum": 0}
POSITIVE: Schema = {"type": "integer", "minimum": 1}
MAYBE: Schema = {"type": ["integer", "null"], "minimum": 1}
QUANTITY: Schema = {"type": "string", "pattern": r"^[0-9.]+([kMGTPE]i?)?$"}
BROKER = "[^@/, ]+"
PULL_SECRET: Schema = {
    "type": ["string", "object"],
    "additionalProperties": False,
    "properties": {"name": TEXT},
    "required": ["name"],
}
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


def lists(kind: Schema) -> Schema:
    """Give the schema of a list of something."""
    return {"type": "array", "items": kind}


def one_of(*values: str) -> Schema:
    """Give the schema of a choice."""
    return {"type": "string", "enum": list(values)}


PEERS = lists(reference("networking.v1.NetworkPolicyPeer"))

KINDS: dict[str, Schema] = {
    "commonAnnotations": LABELS,
    "commonLabels": LABELS,
    "embeddedKafka.command": TEXTS,
    "embeddedKafka.extraConfig": SCALARS,
    "embeddedKafka.persistence.size": QUANTITY,
    "embeddedKafka.port": PORT,
    "embeddedKafka.sourcePartitions": COUNT,
    "extraObjects": lists({"type": ["object", "string"]}),
    "global.imagePullSecrets": lists(PULL_SECRET),
    "imagePullSecrets": lists(PULL_SECRET),
    "kafka.bootstrapServers": {
        "type": ["string", "array"],
        "pattern": f"^({BROKER}(, *{BROKER})*)?$",
        "items": {"type": "string", "pattern": f"^{BROKER}$"},
    },
    "kafka.extraConfig": SCALARS,
    "kafka.sasl.mechanism": one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    "kafka.securityProtocol": one_of("", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "kafka.timeoutSeconds": {"type": "number", "exclusiveMinimum": 0, "maximum": 600},
    "metrics.port": PORT,
    "metrics.service.ipFamilies": lists(one_of("IPv4", "IPv6")),
    "metrics.service.ipFamilyPolicy": one_of("", "SingleStack", "PreferDualStack", "RequireDualStack"),
    "monitoring.prometheusRule.disabled": TEXTS,
    "networkPolicy.egress.dnsPorts": {**lists(PORT), "minItems": 1},
    "networkPolicy.egress.dnsTo": PEERS,
    "networkPolicy.egress.extra": lists(reference("networking.v1.NetworkPolicyEgressRule")),
    "networkPolicy.egress.kafkaPorts": lists(PORT),
    "networkPolicy.egress.kafkaTo": PEERS,
    "networkPolicy.metricsFrom": PEERS,
    "podSecurityContext": reference("core.v1.PodSecurityContext"),
    "securityContext": reference("core.v1.SecurityContext"),
    "source.partitions": MAYBE,
    "source.topic": {"type": "string", "maxLength": 249, "pattern": "^[A-Za-z0-9._-]*$"},
    "spark.activeDeadlineSeconds": MAYBE,
    "spark.conf": SCALARS,
    "spark.memory": {"type": "string", "pattern": "^[0-9]+[kmgt]$"},
    "spark.reports.volume": reference("volume"),
    "spark.ttlSecondsAfterFinished": {"type": ["integer", "null"], "minimum": 0},
    "stageDefaults.affinity": reference("core.v1.Affinity"),
    "stageDefaults.autoscaling.hpa.metrics": lists(reference("autoscaling.v2.MetricSpec")),
    "stageDefaults.autoscaling.hpa.targetCPUUtilizationPercentage": MAYBE,
    "stageDefaults.autoscaling.keda.activationLagThreshold": COUNT,
    "stageDefaults.autoscaling.keda.lagThreshold": POSITIVE,
    "stageDefaults.autoscaling.keda.minReplicas": POSITIVE,
    "stageDefaults.autoscaling.keda.version": {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+){2,3}$"},
    "stageDefaults.autoscaling.hpa.minReplicas": POSITIVE,
    "stageDefaults.envFrom": lists(reference("core.v1.EnvFromSource")),
    "stageDefaults.extraContainers": lists(reference("core.v1.Container")),
    "stageDefaults.extraInitContainers": lists(reference("core.v1.Container")),
    "stageDefaults.extraVolumeMounts": lists(reference("core.v1.VolumeMount")),
    "stageDefaults.extraVolumes": lists(reference("core.v1.Volume")),
    "stageDefaults.persistentVolumeClaimRetentionPolicy": reference(
        "apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy"
    ),
    "stageDefaults.podDisruptionBudget.maxUnavailable": {"type": ["integer", "string", "null"]},
    "stageDefaults.podDisruptionBudget.minAvailable": {"type": ["integer", "string", "null"]},
    "stageDefaults.podDisruptionBudget.unhealthyPodEvictionPolicy": one_of("", "IfHealthyBudget", "AlwaysAllow"),
    "stageDefaults.podManagementPolicy": one_of("OrderedReady", "Parallel"),
    "stageDefaults.replicas": COUNT,
    "stageDefaults.terminationGracePeriodSeconds": COUNT,
    "stageDefaults.topologySpreadConstraints": lists(reference("core.v1.TopologySpreadConstraint")),
    "stageDefaults.updateStrategy": reference("apps.v1.StatefulSetUpdateStrategy"),
    "stageDefaults.volumeClaimTemplates": lists(reference("core.v1.PersistentVolumeClaim")),
    "tests.records": POSITIVE,
    "tests.timeoutSeconds": POSITIVE,
    "topics.create": one_of("none", "strimzi", "job"),
    "topics.job.activeDeadlineSeconds": POSITIVE,
    "topics.job.backoffLimit": COUNT,
    "topics.job.ttlSecondsAfterFinished": COUNT,
    "users.create": one_of("none", "strimzi"),
}
"""By full path; these win."""

ENDINGS: dict[str, Schema] = {
    "additionalLabels": LABELS,
    "affinity": reference("core.v1.Affinity"),
    "annotations": LABELS,
    "args": TEXTS,
    "behavior": reference("autoscaling.v2.HorizontalPodAutoscalerBehavior"),
    "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "extraEnv": lists(reference("core.v1.EnvVar")),
    "heap": {"type": "string", "pattern": "^[0-9]+[kmg]$"},
    "interval": DURATION,
    "livenessProbe": reference("probe"),
    "maxReplicas": MAYBE,
    "metricRelabelings": lists(RELABEL),
    "nodeSelector": LABELS,
    "podAnnotations": LABELS,
    "podLabels": LABELS,
    "podTargetLabels": TEXTS,
    "pullPolicy": one_of("Always", "IfNotPresent", "Never"),
    "readinessProbe": reference("probe"),
    "relabelings": lists(RELABEL),
    "resources": reference("core.v1.ResourceRequirements"),
    "scrapeTimeout": DURATION,
    "startupProbe": reference("probe"),
    "targetLabels": TEXTS,
    "tmpSizeLimit": QUANTITY,
    "tolerations": lists(reference("core.v1.Toleration")),
}
"""By the last name of a path."""
