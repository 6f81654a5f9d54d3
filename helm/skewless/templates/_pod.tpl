{{/* Parts of the pods of the pipeline. */}}

{{/* Fields of a pod's spec. Parameters: root, optionally serviceAccount and token (whether it is mounted). */}}
{{- define "skewless.pod" -}}
serviceAccountName: {{ default (include "skewless.serviceAccount" .root) .serviceAccount | quote }}
automountServiceAccountToken: {{ or .token .root.Values.serviceAccount.automountServiceAccountToken false }}
enableServiceLinks: false
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with concat (default (list) .root.Values.global.imagePullSecrets) (default (list) .root.Values.imagePullSecrets) }}
imagePullSecrets:
  {{- range . }}
  - name: {{ if kindIs "map" . }}{{ .name | quote }}{{ else }}{{ . | quote }}{{ end }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Not empty if the jobs of Spark start executors in pods. */}}
{{- define "skewless.sparkOnKubernetes" -}}
{{- range .Values.spark.jobs }}{{ if and .enabled (hasPrefix "k8s://" $.Values.spark.master) }}true{{ end }}{{ end }}
{{- end }}

{{/* Not empty if tasks write files into the volume of the reports. Those of `plan`, and of a batch into a topic, write none. */}}
{{- define "skewless.sparkWritesReports" -}}
{{- range omit .Values.spark.jobs "plan" }}{{ if and .enabled (not (contains "--out" (join " " .args))) }}true{{ end }}{{ end }}
{{- end }}

{{/* Options of a driver in a pod that starts executors in pods. */}}
{{- define "skewless.sparkKubernetesOptions" -}}
- --conf=spark.driver.host=$(POD_IP)
- --conf=spark.driver.bindAddress=0.0.0.0
- --conf=spark.driver.port=7078
- --conf=spark.driver.blockManager.port=7079
- --conf=spark.blockManager.port=7079
- --conf=spark.authenticate=true
- --conf=spark.network.crypto.enabled=true
- --conf=spark.network.crypto.authEngineVersion=2
- --conf=spark.network.crypto.cipher=AES/GCM/NoPadding
- --conf=spark.network.crypto.saslFallback=false
- --conf=spark.kubernetes.namespace={{ .Release.Namespace }}
- --conf=spark.kubernetes.driver.pod.name=$(POD_NAME)
- --conf=spark.kubernetes.executor.podTemplateFile=/etc/spark/executor.yaml
- --conf=spark.kubernetes.container.image={{ include "skewless.image" (dict "root" . "image" .Values.spark.image "tag" (printf "%s-spark" .Chart.AppVersion)) }}
- --conf=spark.kubernetes.container.image.pullPolicy={{ .Values.spark.image.pullPolicy }}
- --conf=spark.kubernetes.driver.service.deleteOnTermination=false
- --conf=spark.kubernetes.driver.reusePersistentVolumeClaim=false
- --conf=spark.kubernetes.driver.ownPersistentVolumeClaim=false
{{- end }}

{{/* Scheduling of pods. Parameters: (dict "values" values). */}}
{{- define "skewless.placement" -}}
{{- with include "skewless.withoutNulls" .values.nodeSelector | fromYaml }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}

{{/* Image and security context of a container. Parameters: root, optionally image and tag. */}}
{{- define "skewless.container" -}}
{{- $image := default .root.Values.image .image -}}
image: {{ include "skewless.image" (dict "root" .root "image" $image "tag" (default .root.Chart.AppVersion .tag)) }}
imagePullPolicy: {{ $image.pullPolicy }}
securityContext:
  {{- toYaml .root.Values.securityContext | nindent 2 }}
{{- end }}

{{/* Environment with the further credentials of a stage. Parameters: row (of the topology), stage (its values). */}}
{{- define "skewless.credentials" -}}
{{- $stage := .stage -}}
{{- $name := .row.name -}}
{{- /* Of several, a login has one. Without it, the stage names the setting that is missing. */}}
{{- $isOneOfSeveral := gt (len .row.credentials) 1 }}
{{- range .row.credentials }}
{{- if or $stage.existingSecret (not .optional) }}
- name: {{ .env }}
  valueFrom:
    secretKeyRef:
      name: {{ required (printf "stages.%s.existingSecret: set the secret with the key %s" $name .key) $stage.existingSecret | quote }}
      key: {{ get (default (dict) $stage.secretKeys) .key | default .key | quote }}
      {{- if $isOneOfSeveral }}
      optional: true
      {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Environment with the credentials for Kafka, which are never in the file. Parameters: root, overrides, their valuePath. */}}
{{- define "skewless.env" -}}
{{- $protocol := include "skewless.securityProtocol" .root -}}
{{- $kafka := include "skewless.kafka" . | fromYaml -}}
- name: SKEWLESS__METRICS__PORT
  value: {{ .root.Values.metrics.port | quote }}
{{- if and (hasPrefix "SASL" $protocol) (not .root.Values.kafka.sasl.mskIam.region) }}
{{- $secret := required (printf "kafka.sasl.existingSecret, or %s.sasl.existingSecret: %s needs a secret with the password" (default "stages.*.kafka" .valuePath) $protocol) $kafka.sasl.existingSecret }}
{{- $isToken := eq .root.Values.kafka.sasl.mechanism "OAUTHBEARER" }}
- name: {{ include "skewless.usernameVariable" .root }}
  {{- if $kafka.sasl.usernameKey }}
  valueFrom:
    secretKeyRef: {name: {{ $secret | quote }}, key: {{ $kafka.sasl.usernameKey | quote }}}
  {{- else }}
  value: {{ $kafka.sasl.username | quote }}
  {{- end }}
- name: {{ ternary "SKEWLESS__KAFKA__SASL__OAUTHBEARER__CLIENT_SECRET" "SKEWLESS__KAFKA__SASL__PASSWORD" $isToken }}
  valueFrom:
    secretKeyRef: {name: {{ $secret | quote }}, key: {{ $kafka.sasl.passwordKey | quote }}}
{{- if $isToken }}
# KEDA reads these variables too.
- name: SKEWLESS__KAFKA__SASL__OAUTHBEARER__TOKEN_ENDPOINT_URL
  value: {{ .root.Values.kafka.sasl.oauthbearer.tokenEndpointUrl | quote }}
{{- with .root.Values.kafka.sasl.oauthbearer.scope }}
- name: SKEWLESS__KAFKA__SASL__OAUTHBEARER__SCOPE
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (hasSuffix "SSL" $protocol) $kafka.tls.existingSecret }}
- name: SKEWLESS__KAFKA__TLS__CERTIFICATE
  value: /etc/skewless-tls/user.crt
- name: SKEWLESS__KAFKA__TLS__KEY
  value: /etc/skewless-tls/user.key
{{- with $kafka.tls.keyPasswordKey }}
- name: SKEWLESS__KAFKA__TLS__KEY_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ $kafka.tls.existingSecret | quote }}, key: {{ . | quote }}}
{{- end }}
{{- end }}
{{- with include "skewless.registryEnv" .root | trim }}
{{ . }}
{{- end }}
{{- end }}

{{/* Environment with the login at the schema registry. All pods read the same file, so all of them need it. */}}
{{- define "skewless.registryEnv" -}}
{{- with .Values.registry }}
{{- if and .url .existingSecret }}
{{- $isToken := .oauthbearer.tokenEndpointUrl }}
- name: SKEWLESS__REGISTRY__{{ ternary "OAUTHBEARER__CLIENT_ID" "USERNAME" (not (empty $isToken)) }}
  {{- if .username }}
  value: {{ .username | quote }}
  {{- else }}
  valueFrom:
    secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .usernameKey | quote }}}
  {{- end }}
- name: SKEWLESS__REGISTRY__{{ ternary "OAUTHBEARER__CLIENT_SECRET" "PASSWORD" (not (empty $isToken)) }}
  valueFrom:
    secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .passwordKey | quote }}}
{{- end }}
{{- if and .url .tls.existingSecret .tls.keyPasswordKey }}
- name: SKEWLESS__REGISTRY__TLS__KEY_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ .tls.existingSecret | quote }}, key: {{ .tls.keyPasswordKey | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{/* Certificates of the schema registry, as sources of a volume. Empty if there are none. */}}
{{- define "skewless.registryCertificates" -}}
{{- with .Values.registry }}
{{- if .url }}
{{- with .tls.caSecret }}
- secret:
    name: {{ . | quote }}
    items:
      - {key: {{ $.Values.registry.tls.caKey | quote }}, path: registry-ca.crt}
{{- end }}
{{- with .tls.existingSecret }}
- secret:
    name: {{ . | quote }}
    items:
      - {key: {{ $.Values.registry.tls.certKey | quote }}, path: registry.crt}
      - {key: {{ $.Values.registry.tls.keyKey | quote }}, path: registry.key}
{{- end }}
{{- if and .oauthbearer.tokenEndpointUrl .oauthbearer.caSecret }}
- secret:
    name: {{ .oauthbearer.caSecret | quote }}
    items:
      - {key: {{ .oauthbearer.caKey | quote }}, path: registry-token-endpoint-ca.crt}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Variable with the user name, or with the client id if clients log in with tokens. */}}
{{- define "skewless.usernameVariable" -}}
SKEWLESS__KAFKA__SASL__{{ ternary "OAUTHBEARER__CLIENT_ID" "USERNAME" (eq .Values.kafka.sasl.mechanism "OAUTHBEARER") }}
{{- end }}

{{/* Secret with the CA certificate of the token endpoint; empty if there is none. */}}
{{- define "skewless.tokenEndpointCa" -}}
{{- if include "skewless.tokenEndpoint" . }}{{ default "" .Values.kafka.sasl.oauthbearer.caSecret }}{{ end }}
{{- end }}

{{/* Whether there are certificates to mount. Parameters: root, overrides. */}}
{{- define "skewless.certificates" -}}
{{- $kafka := include "skewless.kafka" . | fromYaml -}}
{{- $tls := hasSuffix "SSL" (include "skewless.securityProtocol" .root) -}}
{{- if or (include "skewless.tokenEndpointCa" .root) (include "skewless.registryCertificates" .root | trim) (and $tls (or $kafka.tls.existingSecret $kafka.tls.caSecret)) }}true{{ end }}
{{- end }}

{{- define "skewless.volumeMounts" -}}
- name: pipeline
  mountPath: /etc/skewless
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- if include "skewless.certificates" . }}
- name: tls
  mountPath: /etc/skewless-tls
  readOnly: true
{{- end }}
{{- end }}

{{/* Volumes of a pod. Parameters: root, overrides, optionally configMap and tmp (the size of /tmp). */}}
{{- define "skewless.volumes" -}}
{{- $kafka := include "skewless.kafka" . | fromYaml -}}
- name: pipeline
  configMap:
    name: {{ default (include "skewless.fullname" .root) .configMap }}
- name: tmp
  emptyDir:
    sizeLimit: {{ default .root.Values.tmpSizeLimit .tmp }}
{{- if include "skewless.certificates" . }}
- name: tls
  projected:
    defaultMode: 0440
    sources:
      {{- with $kafka.tls.caSecret }}
      - secret:
          name: {{ . | quote }}
          items:
            - {key: {{ $kafka.tls.caKey | quote }}, path: ca.crt}
      {{- end }}
      {{- with $kafka.tls.existingSecret }}
      - secret:
          name: {{ . | quote }}
          items:
            - {key: {{ $kafka.tls.certKey | quote }}, path: user.crt}
            - {key: {{ $kafka.tls.keyKey | quote }}, path: user.key}
      {{- end }}
      {{- with include "skewless.tokenEndpointCa" .root }}
      - secret:
          name: {{ . | quote }}
          items:
            - {key: {{ $.root.Values.kafka.sasl.oauthbearer.caKey | quote }}, path: token-endpoint-ca.crt}
      {{- end }}
      {{- with include "skewless.registryCertificates" .root | trim }}
      {{- . | nindent 6 }}
      {{- end }}
{{- end }}
{{- end }}

{{/* No retry after a failed check (exit code 1) or an invalid setting (exit code 2). */}}
{{- define "skewless.noRetry" -}}
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes: {operator: In, values: [1, 2]}
      onPodConditions: []
{{- end }}
