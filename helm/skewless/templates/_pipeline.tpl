{{/* The pipeline: its stages, its file, and how it reaches Kafka. */}}

{{/* What is made from the code: stages, topics, rights, defaults. */}}
{{- define "skewless.topology" -}}
{{ .Files.Get "files/topology.yaml" }}
{{- end }}

{{/* The values of one stage: the defaults, and what differs. Takes (dict "root" $ "name" stage). */}}
{{- define "skewless.stage" -}}
{{- $own := default (dict) (get .root.Values.stages .name) -}}
{{- $stage := mergeOverwrite (deepCopy .root.Values.stageDefaults) (deepCopy $own) -}}
{{- $_ := set $stage "kafka" (include "skewless.user" (dict "root" .root "role" .name "own" $stage.kafka) | fromYaml) -}}
{{- toYaml $stage }}
{{- end }}

{{/* Of `kafka` what a role overrides: as said, else the KafkaUser that is made for it. Takes root, role and own. */}}
{{- define "skewless.user" -}}
{{- $own := deepCopy .own -}}
{{- if eq .root.Values.users.create "strimzi" }}
{{- $user := printf "%s-%s" (include "skewless.pipeline" .root) .role -}}
{{- $kind := ternary "sasl" "tls" (eq (include "skewless.usersByPassword" .root) "true") -}}
{{- $own = mergeOverwrite (dict $kind (dict "existingSecret" $user)) $own -}}
{{- end }}
{{- toYaml $own }}
{{- end }}

{{/* How many partitions a topic or a stage's input has; nothing where the chart does not know. Takes root and kind. */}}
{{- define "skewless.partitions" -}}
{{- $defaults := (include "skewless.topology" .root | fromYaml).defaults -}}
{{- $topics := default (dict) .root.Values.pipeline.topics -}}
{{- $workerInput := default (dict) .root.Values.pipeline.worker_input -}}
{{- if eq .kind "source" }}
{{- $known := .root.Values.source.partitions -}}
{{- if and (not $known) .root.Values.embeddedKafka.enabled }}
{{- $known = .root.Values.embeddedKafka.sourcePartitions -}}
{{- end }}
{{- with $known }}{{ int . }}{{ end }}
{{- else if eq .kind "max_workers" }}
{{- int (default $defaults.max_workers $workerInput.max_workers) }}
{{- else if eq .kind "aggregator" }}
{{- int (default $defaults.aggregator_partitions $topics.aggregator_partitions) }}
{{- else if eq .kind "one" -}}
1
{{- else }}
{{- fail (printf "files/topology.yaml: unknown kind of partitions %q" .kind) }}
{{- end }}
{{- end }}

{{/* Parted by commas alone, also where values have a list, or blanks. */}}
{{- define "skewless.bootstrapServers" -}}
{{- $given := .Values.kafka.bootstrapServers -}}
{{- if $given }}
{{- regexReplaceAll "\\s+" (ternary $given (join "," $given) (kindIs "string" $given)) "" }}
{{- else if .Values.embeddedKafka.enabled }}
{{- printf "%s:%d" (include "skewless.embeddedKafka.host" .) (int .Values.embeddedKafka.port) }}
{{- end }}
{{- end }}

{{/* As other namespaces find them: a name without a dot is a Service of the release's. */}}
{{- define "skewless.bootstrapServersFromOutside" -}}
{{- $servers := list -}}
{{- range splitList "," (include "skewless.bootstrapServers" .) }}
{{- $servers = append $servers (regexReplaceAll "^([^.:\\[\\]]+)(:[0-9]+)?$" . (printf "${1}.%s.svc${2}" $.Release.Namespace)) }}
{{- end }}
{{- join "," $servers }}
{{- end }}

{{/* `kafka` as one kind of pod sees it: with what it overrides. Takes (dict "root" $ "own" values). */}}
{{- define "skewless.kafka" -}}
{{- $own := default (dict) .own -}}
{{- $kafka := mergeOverwrite (deepCopy (pick .root.Values.kafka "sasl" "tls")) (deepCopy $own) -}}
{{- $secret := $kafka.sasl.existingSecret -}}
{{- $username := $kafka.sasl.username -}}
{{- if and $own.sasl $own.sasl.existingSecret (not $own.sasl.username) }}
{{- $username = $own.sasl.existingSecret -}}
{{- end }}
{{- $_ := set $kafka.sasl "username" (default $secret $username) -}}
{{- toYaml $kafka }}
{{- end }}

{{/* As said, else what the secrets ask for; a password of one stage is enough, for there is one listener. */}}
{{- define "skewless.securityProtocol" -}}
{{- $sasl := or .Values.kafka.sasl.existingSecret (eq (include "skewless.usersByPassword" .) "true") -}}
{{- range $own := append (values .Values.stages) .Values.stageDefaults }}
{{- $sasl = or $sasl (dig "kafka" "sasl" "existingSecret" "" (default (dict) $own)) -}}
{{- end }}
{{- $tls := .Values.kafka.tls.enabled -}}
{{- default (ternary (ternary "SASL_SSL" "SASL_PLAINTEXT" $tls) (ternary "SSL" "PLAINTEXT" $tls) (not (empty $sasl))) .Values.kafka.securityProtocol }}
{{- end }}

{{/* KafkaUsers have certificates where the security protocol is said to be SSL, else passwords. */}}
{{- define "skewless.usersByPassword" -}}
{{- and (eq .Values.users.create "strimzi") (ne .Values.kafka.securityProtocol "SSL") }}
{{- end }}

{{/* The pipeline's file. */}}
{{- define "skewless.config" -}}
{{- $protocol := include "skewless.securityProtocol" . -}}
{{- $kafka := dict "bootstrap_servers" (include "skewless.bootstrapServers" .) "security_protocol" $protocol "timeout_s" .Values.kafka.timeoutSeconds -}}
{{- if hasPrefix "SASL" $protocol }}
{{- $_ := set $kafka "sasl" (dict "mechanism" .Values.kafka.sasl.mechanism) -}}
{{- end }}
{{- if hasSuffix "SSL" $protocol }}
{{- $tls := dict "verify_hostname" .Values.kafka.tls.verifyHostname -}}
{{- if .Values.kafka.tls.caSecret }}{{ $_ := set $tls "ca" "/etc/skewless-tls/ca.crt" }}{{ end }}
{{- $_ := set $kafka "tls" $tls -}}
{{- end }}
{{- $options := dict -}}
{{- range $name, $value := .Values.kafka.extraConfig }}
{{- $_ := set $options $name (ternary (include "skewless.scalar" $value) $value (kindIs "float64" $value)) -}}
{{- end }}
{{- with $options }}{{ $_ := set $kafka "options" . }}{{ end }}
{{- $given := deepCopy .Values.pipeline -}}
{{- if .Values.embeddedKafka.enabled }}
{{- /* A day, the default of the settings, would not fit on its volume. */}}
{{- $given = merge $given (dict "topics" (dict "internal_retention_s" 3600)) -}}
{{- end }}
{{- $given = merge (dict "name" (include "skewless.pipeline" .) "source" (dict "topic" .Values.source.topic) "kafka" $kafka) $given -}}
{{- toYaml $given }}
{{- end }}

{{/* Changes when pods have to start anew. W does not count: a running pipeline follows it. */}}
{{- define "skewless.checksum" -}}
{{- $config := include "skewless.config" . | fromYaml -}}
{{- with $config.router }}{{ $_ := unset . "workers" }}{{ end }}
{{- if not $config.router }}{{ $_ := unset $config "router" }}{{ end }}
{{- toYaml $config | sha256sum }}
{{- end }}
