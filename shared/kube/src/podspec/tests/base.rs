//! The base template of the tests.

use serde_json::Value;

pub(crate) fn yaml<T: serde::de::DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).expect("YAML")
}

/// A base template like that of the control plane. It meets the baseline level.
pub(crate) fn base() -> Value {
    yaml(
        "metadata: {labels: {ebb.dev/unit: u}}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  securityContext: {seccompProfile: {type: RuntimeDefault}}
  initContainers: [{name: ebb-entrypoint, image: runner, volumeMounts: [{name: ebb-io, mountPath: /ebb}]}]
  containers:
  - name: main
    image: img
    command: [/ebb/runner]
    env: [{name: EBB_KEY, value: k}, {name: TOKEN, valueFrom: {secretKeyRef: {name: ebb-u-1, key: token}}}]
    volumeMounts: [{name: ebb-io, mountPath: /ebb}]
    securityContext: {allowPrivilegeEscalation: false}
  volumes: [{name: ebb-io, emptyDir: {}}, {name: ebb-in, secret: {secretName: ebb-u-1}}]",
    )
}
