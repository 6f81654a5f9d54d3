{{/* Names and labels. */}}

{{- define "skewless.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/*
Prefix of all resource names. 40 characters leave room for the suffix of a stage: the name of a StatefulSet plus a hash
must fit in a label. A truncated name ends with a hash of the full name, because two long names with the same beginning
would otherwise be equal. Dots are replaced, because the name of a Service must not contain them.
*/}}
{{- define "skewless.fullname" -}}
{{- $name := include "skewless.name" . -}}
{{- $full := default (ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name)) .Values.fullnameOverride | replace "." "-" -}}
{{- if gt (len $full) 40 }}
{{- $full = printf "%s-%s" ($full | trunc 33 | trimSuffix "-") ($full | sha256sum | trunc 6) -}}
{{- end }}
{{- $full | trimSuffix "-" }}
{{- end }}

{{/* Name of the pipeline. */}}
{{- define "skewless.pipeline" -}}
{{- default (.Release.Name | replace "." "-") .Values.pipeline.name }}
{{- end }}

{{/* What the names of topics, groups and transactional ids begin with: the prefix and the name of the pipeline. */}}
{{- define "skewless.fullPipelineName" -}}
{{- $topics := default (dict) .Values.pipeline.topics -}}
{{- print (default "" $topics.prefix) (include "skewless.pipeline" .) }}
{{- end }}

{{- define "skewless.selectorLabels" -}}
{{- toYaml (dict "app.kubernetes.io/name" (include "skewless.name" .) "app.kubernetes.io/instance" .Release.Name) }}
{{- end }}

{{/* Selector labels of the pods of one component. Parameters: (dict "root" $ "component" name). */}}
{{- define "skewless.componentLabels" -}}
{{ include "skewless.selectorLabels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Selector labels of the pods of stages, for scraping. */}}
{{- define "skewless.stageLabels" -}}
{{ include "skewless.selectorLabels" . }}
skewless/role: stage
{{- end }}

{{/*
Labels of pods. They contain nothing that changes with each version, because that would restart the pods. Selector
labels override all others. Parameters: root, fixed (the selector labels as text), optionally labels (from values).
*/}}
{{- define "skewless.podLabels" -}}
{{- $labels := tpl (toYaml (default (dict) .labels)) .root | fromYaml -}}
{{- toYaml (merge (fromYaml .fixed) $labels (default (dict) .root.Values.commonLabels)) }}
{{- end }}

{{/* Labels of other resources. Values can override only version and part-of. Parameters: root, component, optionally labels. */}}
{{- define "skewless.labels" -}}
{{- $chart := printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" -}}
{{- $fixed := dict "app.kubernetes.io/managed-by" .root.Release.Service "helm.sh/chart" $chart -}}
{{- $fixed = merge (include "skewless.componentLabels" . | fromYaml) $fixed -}}
{{- $values := merge (dict) (default (dict) .labels) (default (dict) .root.Values.commonLabels) -}}
{{- toYaml (merge $fixed $values (dict "app.kubernetes.io/version" .root.Chart.AppVersion "app.kubernetes.io/part-of" "skewless")) }}
{{- end }}

{{/* Metadata without the name. Parameters: root, component, optionally labels, annotations, namespace. */}}
{{- define "skewless.metadata" -}}
namespace: {{ default .root.Release.Namespace .namespace | quote }}
labels:
  {{- include "skewless.labels" . | nindent 2 }}
{{- with merge (dict) (default (dict) .annotations) (default (dict) .root.Values.commonAnnotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Reference of an image. Parameters: (dict "root" $ "image" values "tag" default). */}}
{{- define "skewless.image" -}}
{{- with coalesce .root.Values.global.imageRegistry .image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .image.repository }}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ default .tag .image.tag }}{{ end }}
{{- end }}

{{- define "skewless.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "skewless.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* A number as text. Helm parses all numbers as floats and would write a million as 1e+06. */}}
{{- define "skewless.scalar" -}}
{{- if kindIs "float64" . }}
{{- if eq (floor .) . }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end }}
{{- else }}
{{- . }}
{{- end }}
{{- end }}
