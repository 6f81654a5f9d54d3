{{/* Host name of the embedded Kafka, which also other namespaces can resolve. */}}
{{- define "skewless.embeddedKafka.host" -}}
{{- printf "%s-kafka.%s.svc" (include "skewless.fullname" .) .Release.Namespace }}
{{- end }}

{{/* Init containers that wait for the embedded Kafka and create its topics. Parameters: root, overrides. */}}
{{- define "skewless.embeddedKafka.wait" -}}
{{- $container := include "skewless.container" . -}}
{{- $embedded := .root.Values.embeddedKafka -}}
{{- $steps := list -}}
{{- if $embedded.sourcePartitions }}
{{- $create := printf "--file, /etc/skewless/pipeline.yaml, --partitions, %q, --records, \"0\"" (toString $embedded.sourcePartitions) -}}
{{- $isOwn := include "skewless.hasOwnSource" .root -}}
{{- range $number, $topic := include "skewless.sourceTopics" .root | default "[]" | fromJsonArray }}
{{- if and $topic (not $isOwn) }}
{{- $steps = append $steps (list (ternary "source" (printf "source-%d" $number) (eq $number 0)) (printf "[produce, zipf, %s%s]" (ternary "" (printf "--topic, %q, " $topic) (not (not $.root.Values.source.topic))) $create)) -}}
{{- end }}
{{- end }}
{{- if .root.Values.pipeline.join }}
{{- range $name := list "left" "right" }}
{{- $topic := include "skewless.input" (dict "root" $.root "name" $name) -}}
{{- $steps = append $steps (list $name (printf "[produce, impressions, --topic, %q, %s]" $topic $create)) -}}
{{- end }}
{{- end }}
{{- end }}
{{- if eq .root.Values.topics.create "job" }}
{{- $steps = append $steps (list "topics" "[topics, apply, --file, /etc/skewless/pipeline.yaml]") -}}
{{- end }}
{{- range $steps }}
- name: {{ first . }}
  {{- $container | nindent 2 }}
  args: {{ last . }}
  env:
    {{- include "skewless.env" $ | nindent 4 }}
    - name: SKEWLESS__KAFKA__CONNECT_TIMEOUT_S
      value: "300"
  resources:
    {{- toYaml $.root.Values.topics.job.resources | nindent 4 }}
  volumeMounts:
    {{- include "skewless.volumeMounts" $ | nindent 4 }}
{{- end }}
{{- end }}

{{/* Labels of the embedded Kafka. They differ from those of stages: the metrics Service must not select its pod. */}}
{{- define "skewless.embeddedKafka.labels" -}}
{{- toYaml (dict "app.kubernetes.io/name" (printf "%s-kafka" (include "skewless.name" .)) "app.kubernetes.io/instance" .Release.Name) }}
{{- end }}
