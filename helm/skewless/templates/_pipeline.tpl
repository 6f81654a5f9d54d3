{{/* The pipeline: stages, configuration file, and connection to Kafka. */}}

{{/* Stages, topics, ACLs and defaults, which are generated from the code. */}}
{{- define "skewless.topology" -}}
{{ .Files.Get "files/topology.yaml" }}
{{- end }}

{{/* Stages that the pipeline has. */}}
{{- define "skewless.stages" -}}
{{ include "skewless.needed" (dict "root" . "rows" (include "skewless.topology" . | fromYaml).stages) }}
{{- end }}

{{/*
Processes that have a StatefulSet: each stage or, with mode single, one process of all stages. A row has a name, the
partitions that limit the number of processes, and the `stages` that it runs.
*/}}
{{- define "skewless.processes" -}}
{{- $stages := include "skewless.stages" . | fromYamlArray -}}
{{- $processes := list -}}
{{- if eq .Values.mode "single" }}
{{- $processes = list (dict "name" "all" "partitions" (list "one") "stages" $stages) -}}
{{- else }}
{{- range $row := $stages }}
{{- $processes = append $processes (merge (dict "stages" (list $row)) $row) -}}
{{- end }}
{{- end }}
{{- toYaml $processes }}
{{- end }}

{{/* Topics that the pipeline has. */}}
{{- define "skewless.topics" -}}
{{ include "skewless.needed" (dict "root" . "rows" (include "skewless.topology" . | fromYaml).topics) }}
{{- end }}

{{/*
Rows without conditions, and those of which a condition holds: the setting has one of the values or, without values, is
not null. The path contains the default of each setting. Parameters: root, rows.
*/}}
{{- define "skewless.needed" -}}
{{- $config := include "skewless.config" .root | fromYaml -}}
{{- $rows := list -}}
{{- range $row := .rows }}
{{- $needed := not $row.needs -}}
{{- range $condition := $row.needs }}
{{- $value := $config -}}
{{- range $condition.path }}
{{- if kindIs "map" $value }}
{{- $value = ternary (get $value .name) .default (hasKey $value .name) -}}
{{- end }}
{{- end }}
{{- $isSet := not (kindIs "invalid" $value) -}}
{{- $needed = or $needed (ternary (has $value $condition.values) $isSet (gt (len $condition.values) 0)) -}}
{{- end }}
{{- if $needed }}{{ $rows = append $rows $row }}{{ end }}
{{- end }}
{{- toYaml $rows }}
{{- end }}

{{/* Entries of an object that are not null. Null itself has none. */}}
{{- define "skewless.withoutNulls" -}}
{{- $kept := dict -}}
{{- range $key, $value := default (dict) . }}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $kept $key $value }}{{ end }}
{{- end }}
{{- toYaml $kept }}
{{- end }}

{{/*
Values of one stage, or of the process `all`: stageDefaults with its overrides. A label, request or limit that is null is
removed: Kubernetes would read a limit of null as 0.
Parameters: (dict "root" $ "name" stage).
*/}}
{{- define "skewless.stage" -}}
{{- $overrides := default (dict) (get .root.Values.stages .name) -}}
{{- $stage := mergeOverwrite (deepCopy .root.Values.stageDefaults) (deepCopy $overrides) -}}
{{- range $name := list "podAnnotations" "podLabels" }}
{{- $_ := set $stage $name (include "skewless.withoutNulls" (get $stage $name) | fromYaml) -}}
{{- end }}
{{- $resources := default (dict) $stage.resources -}}
{{- range $name := list "requests" "limits" }}
{{- if hasKey $resources $name }}{{ $_ := set $resources $name (include "skewless.withoutNulls" (get $resources $name) | fromYaml) }}{{ end }}
{{- end }}
{{- $_ := set $stage "kafka" (include "skewless.user" (dict "root" .root "role" .name "overrides" $stage.kafka) | fromYaml) -}}
{{- toYaml $stage }}
{{- end }}

{{/* Name of the KafkaUser of a role. With the prefix of the topics: pipelines of several namespaces share one of Strimzi.
Parameters: root, role. */}}
{{- define "skewless.kafkaUser" -}}
{{- printf "%s-%s" (include "skewless.fullPipelineName" .root | lower | replace "_" "-" | replace "." "-") .role }}
{{- end }}

{{/*
Overrides of `kafka` for a role, by default its KafkaUser. The keys in the secret of a KafkaUser are Strimzi's: those of
`kafka` are of another secret. Parameters: root, role, overrides.
*/}}
{{- define "skewless.user" -}}
{{- $overrides := deepCopy (default (dict) .overrides) -}}
{{- $kind := ternary "sasl" "tls" (eq (include "skewless.usersByPassword" .root) "true") -}}
{{- if and (eq .root.Values.users.create "strimzi") (not (dig $kind "existingSecret" "" $overrides)) }}
{{- $keys := dict "sasl" (dict "usernameKey" "" "passwordKey" "password") "tls" (dict "certKey" "user.crt" "keyKey" "user.key" "keyPasswordKey" "") -}}
{{- $overrides = mergeOverwrite (dict $kind (get $keys $kind)) $overrides (dict $kind (dict "existingSecret" (include "skewless.kafkaUser" .))) -}}
{{- end }}
{{- toYaml $overrides }}
{{- end }}

{{/* Full name of an input topic of a stage: the user's topic, or one of the pipeline. Parameters: root, name. */}}
{{- define "skewless.input" -}}
{{- $join := default (dict) .root.Values.pipeline.join -}}
{{- if eq .name "source" }}{{ .root.Values.source.topic }}
{{- else if eq .name "events" }}{{ dig "topic" "" (default (dict) .root.Values.pipeline.enrich) }}
{{- else if has .name (list "left" "right") }}{{ dig .name "topic" "" $join }}
{{- else }}{{ printf "%s.%s" (include "skewless.fullPipelineName" .root) .name }}
{{- end }}
{{- end }}

{{/* Source topics as a JSON list. A list with an empty name: those that match a pattern. Empty: there is no source. */}}
{{- define "skewless.sourceTopics" -}}
{{- if .Values.source.topic }}{{ toJson (list .Values.source.topic) }}
{{- else if kindIs "map" .Values.source.topics }}{{ toJson (list "") }}
{{- else if .Values.source.topics }}{{ toJson .Values.source.topics }}
{{- end }}
{{- end }}

{{/* "true" if the pipeline writes its source topic: the pairs of its join, or its enriched records. */}}
{{- define "skewless.hasOwnSource" -}}
{{- $pipeline := include "skewless.fullPipelineName" . -}}
{{- $written := dict "join" (printf "%s.joined" $pipeline) "enrich" (printf "%s.enriched" $pipeline) -}}
{{- range $section, $topic := $written }}
{{- if and (get $.Values.pipeline $section) (eq $topic (default "" $.Values.source.topic)) }}true{{ end }}
{{- end }}
{{- end }}

{{/* Full names of the topics of an input of a stage, as a JSON list. Parameters: root, name. */}}
{{- define "skewless.inputs" -}}
{{- if eq .name "source" }}{{ include "skewless.sourceTopics" .root }}
{{- else }}{{ toJson (list (include "skewless.input" .)) }}
{{- end }}
{{- end }}

{{/* Resources of an ACL as a JSON list: name and patternType. Parameters: root, acl. */}}
{{- define "skewless.aclResources" -}}
{{- $resources := list -}}
{{- $topics := list -}}
{{- if eq .acl.userTopic "source" }}
{{- $topics = include "skewless.sourceTopics" .root | default "[]" | fromJsonArray -}}
{{- else if eq .acl.userTopic "events" }}
{{- with .root.Values.pipeline.enrich }}
{{- $topics = list .topic -}}
{{- end }}
{{- else if eq .acl.userTopic "tables" }}
{{- range (default (dict) .root.Values.pipeline.enrich).tables }}
{{- $topics = append $topics .topic -}}
{{- end }}
{{- else }}
{{- $topics = list (include "skewless.topic" .) -}}
{{- end }}
{{- range $topic := $topics }}
{{- if $topic }}
{{- $resources = append $resources (dict "name" $topic "patternType" $.acl.patternType) -}}
{{- else }}
{{- /* The characters with which each matching name begins. */}}
{{- $match := $.root.Values.source.topics.match -}}
{{- $plain := regexFind "^\\^?(?:[A-Za-z0-9_-]|\\\\\\.)*[*?{]?" $match -}}
{{- $prefix := regexReplaceAll ".?[*?{]$" $plain "" | trimPrefix "^" | replace "\\" "" -}}
{{- if or (contains "|" $match) (not $prefix) }}
{{- $resources = append $resources (dict "name" "*" "patternType" "literal") -}}
{{- else }}
{{- $resources = append $resources (dict "name" $prefix "patternType" "prefix") -}}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $resources }}
{{- end }}

{{/* Name of the resource of an ACL: of the user's topic, or of the pipeline. Parameters: root, acl. */}}
{{- define "skewless.topic" -}}
{{- if .acl.userTopic }}{{ include "skewless.input" (dict "root" .root "name" .acl.userTopic) }}
{{- else }}{{ print (include "skewless.fullPipelineName" .root) .acl.suffix }}
{{- end }}
{{- end }}

{{/* Number of partitions of a topic; empty if the chart does not know it. Parameters: root, kind. */}}
{{- define "skewless.partitions" -}}
{{- $defaults := (include "skewless.topology" .root | fromYaml).defaults -}}
{{- $topics := default (dict) .root.Values.pipeline.topics -}}
{{- $workerInput := default (dict) .root.Values.pipeline.worker_input -}}
{{- if has .kind (list "source" "tuples" "join") }}
{{- /* Without a source, the topics that have as many partitions as `tuples` have those of the joined topics. */}}
{{- $ofJoin := or (eq .kind "join") (not (include "skewless.sourceTopics" .root)) -}}
{{- $partitions := ternary .root.Values.join.partitions .root.Values.source.partitions $ofJoin -}}
{{- if and (not $partitions) .root.Values.embeddedKafka.enabled }}
{{- $partitions = .root.Values.embeddedKafka.sourcePartitions -}}
{{- end }}
{{- if and (eq .kind "tuples") (not $ofJoin) $topics.tuples_partitions }}
{{- $partitions = $topics.tuples_partitions -}}
{{- end }}
{{- with $partitions }}{{ int . }}{{ end }}
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

{{/*
Largest number of processes of a stage that have partitions; empty if the chart does not know it. Parameters: root, row.
*/}}
{{- define "skewless.maxProcesses" -}}
{{- $counts := list -}}
{{- range $kind := .row.partitions }}
{{- $counts = append $counts (include "skewless.partitions" (dict "root" $.root "kind" $kind)) -}}
{{- end }}
{{- if not (has "" $counts) }}
{{- $most := 0 -}}
{{- range $counts }}{{ $most = max $most (int .) }}{{ end }}
{{- $most }}
{{- end }}
{{- end }}

{{/* Brokers as a comma-separated string without spaces, also if the value is a list. */}}
{{- define "skewless.bootstrapServers" -}}
{{- $value := .Values.kafka.bootstrapServers -}}
{{- if $value }}
{{- regexReplaceAll "\\s+" (ternary $value (join "," $value) (kindIs "string" $value)) "" }}
{{- else if .Values.embeddedKafka.enabled }}
{{- printf "%s:%d" (include "skewless.embeddedKafka.host" .) (int .Values.embeddedKafka.port) }}
{{- end }}
{{- end }}

{{/* Brokers for clients in other namespaces. A name without a dot is a Service in the namespace of the release. */}}
{{- define "skewless.bootstrapServersFromOutside" -}}
{{- $servers := list -}}
{{- range splitList "," (include "skewless.bootstrapServers" .) }}
{{- $servers = append $servers (regexReplaceAll "^([^.:\\[\\]]+)(:[0-9]+)?$" . (printf "${1}.%s.svc${2}" $.Release.Namespace)) }}
{{- end }}
{{- join "," $servers }}
{{- end }}

{{/* Values of `kafka` with the overrides of a kind of pod. Parameters: (dict "root" $ "overrides" values). */}}
{{- define "skewless.kafka" -}}
{{- $overrides := default (dict) .overrides -}}
{{- $kafka := mergeOverwrite (deepCopy (pick .root.Values.kafka "sasl" "tls")) (deepCopy $overrides) -}}
{{- $secret := $kafka.sasl.existingSecret -}}
{{- $username := $kafka.sasl.username -}}
{{- if and $overrides.sasl $overrides.sasl.existingSecret (not $overrides.sasl.username) }}
{{- $username = $overrides.sasl.existingSecret -}}
{{- end }}
{{- $_ := set $kafka.sasl "username" (default $secret $username) -}}
{{- toYaml $kafka }}
{{- end }}

{{/*
The value, by default derived from TLS and the secrets. A password of one stage enables SASL for all stages, because all
of them use the same listener.
*/}}
{{- define "skewless.securityProtocol" -}}
{{- $sasl := or .Values.kafka.sasl.existingSecret .Values.kafka.sasl.mskIam.region (eq (include "skewless.usersByPassword" .) "true") -}}
{{- range $stage := append (values .Values.stages) .Values.stageDefaults }}
{{- $sasl = or $sasl (dig "kafka" "sasl" "existingSecret" "" (default (dict) $stage)) -}}
{{- end }}
{{- $tls := not (empty .Values.kafka.tls.enabled) -}}
{{- default (ternary (ternary "SASL_SSL" "SASL_PLAINTEXT" $tls) (ternary "SSL" "PLAINTEXT" $tls) (not (empty $sasl))) .Values.kafka.securityProtocol }}
{{- end }}

{{/* Address at which clients get their tokens; empty unless they log in with tokens. */}}
{{- define "skewless.tokenEndpoint" -}}
{{- if and (hasPrefix "SASL" (include "skewless.securityProtocol" .)) (eq .Values.kafka.sasl.mechanism "OAUTHBEARER") }}
{{- default "" .Values.kafka.sasl.oauthbearer.tokenEndpointUrl }}
{{- end }}
{{- end }}

{{/* Whether KafkaUsers have passwords. They have certificates if the security protocol is set to SSL. */}}
{{- define "skewless.usersByPassword" -}}
{{- and (eq .Values.users.create "strimzi") (ne .Values.kafka.securityProtocol "SSL") }}
{{- end }}

{{/* Why `helm test` cannot send records to the pipeline. Empty if it can. */}}
{{- define "skewless.noTestRecords" -}}
{{- $aggregator := default (dict) .Values.pipeline.aggregator -}}
{{- if not (include "skewless.sourceTopics" .) -}}
the test checks results of an aggregation, and without source.topic there is none
{{- else if include "skewless.hasOwnSource" . -}}
the test would write into {{ .Values.source.topic }}, which the pipeline writes itself
{{- else if $aggregator.having -}}
the test cannot check results that pipeline.aggregator.having leaves out
{{- else if $aggregator.top -}}
keys of the test would take the ranks of others in pipeline.aggregator.top
{{- else if not (default "count" $aggregator.aggregates | toJson | contains (quote "count")) -}}
the test checks counts, and pipeline.aggregator.aggregates does not contain count
{{- else if dig "splitter" "python" "" .Values.pipeline -}}
the test cannot generate records for the function pipeline.splitter.python
{{- end -}}
{{- end }}

{{/*
Whether `helm test` sends records: by default only to the embedded Kafka, unless results are final, which need newer
records, or the splitter may leave out generated records or change their keys.
*/}}
{{- define "skewless.sendsTestRecords" -}}
{{- $splitter := default (dict) .Values.pipeline.splitter -}}
{{- $isFinal := eq (default "updates" (.Values.pipeline.aggregator).emit) "final" -}}
{{- $default := and .Values.embeddedKafka.enabled (not (or $isFinal $splitter.where ($splitter.key).pattern)) -}}
{{- $sends := ternary $default .Values.tests.sendRecords (kindIs "invalid" .Values.tests.sendRecords) -}}
{{- if and .Values.tests.enabled $sends (not (include "skewless.noTestRecords" .)) }}true{{ end }}
{{- end }}

{{/* Section `registry` of the pipeline's file, without the login, which is in the environment. Empty without a registry. */}}
{{- define "skewless.registry" -}}
{{- with .Values.registry }}
{{- if .url }}
url: {{ .url }}
connect_timeout_s: {{ .connectTimeoutSeconds }}
request_timeout_s: {{ .requestTimeoutSeconds }}
{{- if .allowUnencrypted }}
allow_unencrypted: true
{{- end }}
{{- if .oauthbearer.tokenEndpointUrl }}
oauthbearer:
  token_endpoint_url: {{ .oauthbearer.tokenEndpointUrl }}
  {{- with .oauthbearer.scope }}
  scope: {{ . | quote }}
  {{- end }}
  {{- with .oauthbearer.logicalCluster }}
  logical_cluster: {{ . | quote }}
  {{- end }}
  {{- with .oauthbearer.identityPool }}
  identity_pool: {{ . | quote }}
  {{- end }}
  {{- if .oauthbearer.caSecret }}
  ca: /etc/skewless-tls/registry-token-endpoint-ca.crt
  {{- end }}
{{- end }}
{{- if or .tls.caSecret .tls.existingSecret }}
tls:
  {{- if .tls.caSecret }}
  ca: /etc/skewless-tls/registry-ca.crt
  {{- end }}
  {{- if .tls.existingSecret }}
  certificate: /etc/skewless-tls/registry.crt
  key: /etc/skewless-tls/registry.key
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Content of the pipeline's file. */}}
{{- define "skewless.config" -}}
{{- $protocol := include "skewless.securityProtocol" . -}}
{{- $kafka := dict "bootstrap_servers" (include "skewless.bootstrapServers" .) "security_protocol" $protocol "connect_timeout_s" .Values.kafka.connectTimeoutSeconds -}}
{{- if hasPrefix "SASL" $protocol }}
{{- $sasl := dict "mechanism" .Values.kafka.sasl.mechanism -}}
{{- if .Values.kafka.sasl.allowUnencrypted }}{{ $_ := set $sasl "allow_unencrypted" true }}{{ end }}
{{- if and (include "skewless.tokenEndpoint" .) .Values.kafka.sasl.oauthbearer.caSecret }}
{{- $_ := set $sasl "oauthbearer" (dict "ca" "/etc/skewless-tls/token-endpoint-ca.crt") -}}
{{- end }}
{{- with .Values.kafka.sasl.mskIam.region }}{{ $_ := set $sasl "msk_iam" (dict "region" .) }}{{ end }}
{{- $_ := set $kafka "sasl" $sasl -}}
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
{{- $config := deepCopy .Values.pipeline -}}
{{- with include "skewless.registry" . | fromYaml }}
{{- $_ := set $config "registry" . -}}
{{- end }}
{{- if .Values.embeddedKafka.enabled }}
{{- /* The default of the settings, one day, would not fit on the volume of the embedded Kafka. */}}
{{- $config = merge $config (dict "topics" (dict "internal_retention_s" 3600)) -}}
{{- end }}
{{- if has "IPv6" (default (list) .Values.metrics.service.ipFamilies) }}
{{- $config = merge $config (dict "metrics" (dict "address" "::")) -}}
{{- end }}
{{- $config = merge (dict "name" (include "skewless.pipeline" .) "kafka" $kafka) $config -}}
{{- $source := dict -}}
{{- with .Values.source.start }}{{ $_ := set $source "start" . }}{{ end }}
{{- with .Values.source.skipTo }}{{ $_ := set $source "skip_to" . }}{{ end }}
{{- if .Values.source.topic }}{{ $_ := set $config "source" (merge (dict "topic" .Values.source.topic) $source) }}
{{- else if .Values.source.topics }}{{ $_ := set $config "source" (merge (dict "topics" .Values.source.topics) $source) }}{{ end }}
{{- /* `skewless status` does not miss a stage that the pipeline does without. */}}
{{- $without := dict -}}
{{- range $name, $stage := .Values.stages }}
{{- if and (kindIs "map" $stage) (ne $name "all") }}
{{- if not (kindIs "invalid" $stage.replicas) }}
{{- if eq (int $stage.replicas) 0 }}{{ $_ := set $without $name 0 }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- with $without }}{{ $_ := set $config "replicas" . }}{{ end }}
{{- toYaml $config }}
{{- end }}

{{/* Changes when pods must restart. The number of workers is not included, because a running pipeline adopts it. */}}
{{- define "skewless.checksum" -}}
{{- $config := include "skewless.config" . | fromYaml -}}
{{- with $config.router }}{{ $_ := unset . "workers" }}{{ end }}
{{- if not $config.router }}{{ $_ := unset $config "router" }}{{ end }}
{{- $_ := unset $config "replicas" }}
{{- toYaml $config | sha256sum }}
{{- end }}
