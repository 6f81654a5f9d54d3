{{/* Names and labels. */}}

{{- define "skewless.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/*
40 characters leave room for a stage behind it: a StatefulSet's name must fit a label, with a hash behind it. What is
cut ends in a hash of the whole, or two long names that begin alike would be one. A Service's name has no dots.
*/}}
{{- define "skewless.fullname" -}}
{{- $name := include "skewless.name" . -}}
{{- $full := default (ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name)) .Values.fullnameOverride | replace "." "-" -}}
{{- if gt (len $full) 40 }}
{{- $full = printf "%s-%s" ($full | trunc 33 | trimSuffix "-") ($full | sha256sum | trunc 6) -}}
{{- end }}
{{- $full | trimSuffix "-" }}
{{- end }}

{{/* Prefix of topics, groups and transactional ids. */}}
{{- define "skewless.pipeline" -}}
{{- default (.Release.Name | replace "." "-") .Values.pipeline.name }}
{{- end }}

{{- define "skewless.selectorLabels" -}}
{{- toYaml (dict "app.kubernetes.io/name" (include "skewless.name" .) "app.kubernetes.io/instance" .Release.Name) }}
{{- end }}

{{/* By these the pods of one component are found. Takes (dict "root" $ "component" name). */}}
{{- define "skewless.componentLabels" -}}
{{ include "skewless.selectorLabels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* By these the pods of stages, and no others, are found by who scrapes them. */}}
{{- define "skewless.stageLabels" -}}
{{ include "skewless.selectorLabels" . }}
skewless/role: stage
{{- end }}

{{/*
Labels of pods: nothing that changes with every version, for that would roll them. Those by which pods are found win
over all others. Takes root, fixed: those as text, and optionally own: labels as values have them.
*/}}
{{- define "skewless.podLabels" -}}
{{- $own := tpl (toYaml (default (dict) .own)) .root | fromYaml -}}
{{- toYaml (merge (fromYaml .fixed) $own (default (dict) .root.Values.commonLabels)) }}
{{- end }}

{{/* Labels of everything else; only version and part-of give way. Takes root, component, and optionally labels. */}}
{{- define "skewless.labels" -}}
{{- $chart := printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" -}}
{{- $fixed := dict "app.kubernetes.io/managed-by" .root.Release.Service "helm.sh/chart" $chart -}}
{{- $fixed = merge (include "skewless.componentLabels" . | fromYaml) $fixed -}}
{{- $given := merge (dict) (default (dict) .labels) (default (dict) .root.Values.commonLabels) -}}
{{- toYaml (merge $fixed $given (dict "app.kubernetes.io/version" .root.Chart.AppVersion "app.kubernetes.io/part-of" "skewless")) }}
{{- end }}

{{/* Everything below `metadata:` but the name. Takes root, component, and optionally labels, annotations, namespace. */}}
{{- define "skewless.metadata" -}}
namespace: {{ default .root.Release.Namespace .namespace }}
labels:
  {{- include "skewless.labels" . | nindent 2 }}
{{- with merge (dict) (default (dict) .annotations) (default (dict) .root.Values.commonAnnotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Address of an image. Takes (dict "root" $ "image" values "tag" default). */}}
{{- define "skewless.image" -}}
{{- $registry := default .image.registry .root.Values.global.imageRegistry -}}
{{- with $registry | trimSuffix "/" }}{{ . }}/{{ end }}{{ .image.repository }}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ default .tag .image.tag }}{{ end }}
{{- end }}

{{- define "skewless.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "skewless.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* A number as it is written: Helm knows floats alone, and would write a million as 1e+06. */}}
{{- define "skewless.scalar" -}}
{{- if kindIs "float64" . }}
{{- if eq (floor .) . }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end }}
{{- else }}
{{- . }}
{{- end }}
{{- end }}
